"""What handlers return as objects is written with a schema, or fails as the handler's records do."""

from datetime import UTC, datetime

import pytest
from pyspark.sql.types import Row

from spark_kafka_group import ProducerRecord
from spark_kafka_group.errors import ProcessingError, UnwritableRowError
from spark_kafka_group.options.sink_options import SinkOptions
from spark_kafka_group.processing.processor_settings import TopicsWritten
from spark_kafka_group.processing.typed_output import OutputEncoder

from .test_processor import READ
from .test_work_queue import Elsewhere, records, rows_of_work

PROTO = """syntax = "proto3"; import "google/protobuf/wrappers.proto"; import "google/protobuf/timestamp.proto";
message R { int32 a = 1; repeated S l = 2; message S { string s = 1; } map<string, S> m = 3; optional E e = 4;
  enum E { X = 0; Y = 1; } google.protobuf.Int32Value w = 5; uint64 u = 6; google.protobuf.Timestamp t = 7; }"""
AVRO = """{"type": "record", "name": "R", "fields": [
  {"name": "a", "type": "int"}, {"name": "d", "type": "int", "default": 7}, {"name": "s", "type": ["null", "string"]},
  {"name": "in", "type": {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int", "default": 5}]}}]}"""
PROTOBUF = {"valueFormat": "protobuf", "valueSchema": PROTO}


def encoding(**given):
    written = TopicsWritten.from_options(READ, {"topic": "out"} | given, ())
    assert not {"valueformat", "valueschema"} & {name.lower() for name in written.of_a_stream}
    SinkOptions.parse(dict(written.of_a_stream) | {"topic": "out"})
    return written.encoding


def made(value, **given):
    [record] = OutputEncoder(encoding(**given)).encoded((ProducerRecord(value, "key"),))
    assert record.key == "key"
    return record.value


def test_protobuf_avro_and_json_are_written_of_dicts_and_rows():
    every = {
        "a": 1, "l": [{"s": "x"}, Row(s="")], "m": {"k": {"s": "y"}}, "e": "X", "w": 0, "u": 2**64 - 1,
        "t": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
    }  # fmt: skip
    expected = b"\x08\x01\x12\x03\x0a\x01x\x12\0\x1a\x08\x0a\x01k\x12\x03\x0a\x01y\x20\0\x2a\0\x30" + b"\xff" * 9
    assert made(every, **PROTOBUF) == expected + b"\x01\x3a\x02\x08\x01"
    assert made(Row(a=1), **PROTOBUF) == b"\x08\x01"
    assert made({}, **PROTOBUF) == b""
    assert made(None, **PROTOBUF) is None
    avro = {"valueFormat": "avro", "valueSchema": AVRO}
    assert made({"a": 1, "in": {}}, **avro) == b"\x02\x0e\x00\x0a"
    assert made({"a": 1, "d": 2, "s": "x", "in": {"x": 3}}, **avro) == b"\x02\x04\x02\x02x\x06"
    json = {"valueFormat": "json", "timeZone": "Europe/Berlin"}
    assert made({"a": [1, None], "t": every["t"], "n": None}, **json) == (
        b'{"a":[1,null],"t":"1970-01-01T01:00:01.000+01:00"}'
    )
    assert made("text", valueFormat="string") == "text"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"b": 1}, "value: it has the field b, and the schema has not"),
        ({"l": [{"t": 1}]}, "value: it has the field l.t, and the schema has not"),
        ({"a": "x"}, "a record does not fit its schema: value: Could not convert 'x'"),
        ({"e": "Z"}, "column value, field e: 'Z' is no symbol of the schema's enum E"),
        (5, "a record does not fit its schema: value"),
    ],
)
def test_what_does_not_fit_is_named(value, why):
    with pytest.raises(UnwritableRowError, match=why):
        made(value, **PROTOBUF)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_record_whose_result_does_not_fit_is_a_dead_letter_at_once(is_async):
    def returned(record):
        return ProducerRecord({"e": "Z" if record.value == b"3" else "Y"})

    async def returned_later(record):
        return returned(record)

    elsewhere = Elsewhere()
    rows, queue, _ = rows_of_work(
        returned_later if is_async else returned, records(9), elsewhere,
        group="g", topic="out", dead_letter_topic="dead", encoding=encoding(**PROTOBUF),
    )  # fmt: skip
    assert [row.value for row in rows if row.topic == "out"] == [b"\x20\x01"] * 8
    assert (queue.counts.done, queue.counts.dead, queue.counts.tries_again) == (8, 1, 0)
    assert [(record.value, failure.fatal) for record, failure in elsewhere.sent] == [(b"3", True)]


def test_a_schema_that_cannot_be_had_stops_the_query():
    away = {"schema.registry.url": "http://127.0.0.1:1", "kafka.max.block.ms": 1}
    for given in (away | {"valueFormat": "avro"}, {"valueFormat": "avro", "valueSchema": "{"}):
        with pytest.raises(ProcessingError, match="what handlers return cannot be written to topic out: "):
            rows_of_work(
                lambda record: ProducerRecord({}), records(1), group="g", topic="out", encoding=encoding(**given)
            )
