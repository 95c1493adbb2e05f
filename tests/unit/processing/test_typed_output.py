"""What handlers return as objects is written with a schema, or fails as the handler's records do."""

import json
import threading
import time
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock
from decimal import Decimal
from uuid import UUID

import pytest
from pyspark import TaskContext
from pyspark.sql.types import Row
from support.http_answers import front

from spark_kafka_group import ProducerRecord
from spark_kafka_group.errors import OptionError, ProcessingError, UnwritableRowError
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
PLAIN = READ | {"kafka.security.protocol": "PLAINTEXT"}
PROTOBUF = {"valueFormat": "protobuf", "valueSchema": PROTO}


def formats(**given):
    written = TopicsWritten.from_options(PLAIN, {"topic": "out"} | given, ())
    assert not {"valueformat", "valueschema"} & {name.lower() for name in written.of_a_stream}
    SinkOptions.parse(dict(written.of_a_stream) | {"topic": "out"})
    return written.formats_of_a_stream


def made(value, **given):
    [record] = OutputEncoder(formats(**given)).encoded([ProducerRecord(value, "key")])
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


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"b": 1}, "value: it has the field b, and the schema has not"),
        ({"l": [{"t": 1}]}, "value: it has the field l.element.t, and the schema has not"),
        ({"A": 1}, "value: it has the field A, and the schema has not"),
        ({"a": "x"}, "a record does not fit its schema: value, field a: 'x' is of type str: make it an int"),
        ({"a": 1.5}, "field a: 1.5 is of type float: make it an int"),
        ({"a": True}, "field a: True is of type bool: make it an int"),
        ({"a": 2**31}, "field a: .*2147483648"),
        ({"e": "Z"}, "column value, field e: 'Z' is no symbol of the schema's enum E"),
        ({"e": 1}, "field e: 1 is of type int: make it a str"),
        ({"u": 1.5}, "field u: 1.5 is of type float: make it a Decimal or an int"),
        ({"u": Decimal("1.5")}, "field u: Rescaling"),
        ({"u": Decimal("NaN")}, "field u: "),
        ({"t": 5}, "field t: 5 is of type int: make it a datetime"),
        ({"t": date(2026, 1, 1)}, "field t: .* is of type date: make it a datetime"),
        ({"t": datetime(2026, 1, 1)}, "field t: 2026-01-01 00:00:00 has no zone: give it one, as in datetime.now"),
        ({"l": [None]}, "field l.element: it is null, and the schema has message S here"),
        ({"l": {"s": "x"}}, "field l: .* is of type dict: make it a list"),
        ({"l": ["x"]}, "field l.element: 'x' is of type str: make it a dict or a Row"),
        ({"l": [{"s": b"x"}]}, "field l.element.s: b'x' is of type bytes: make it a str"),
        ({"l": [{"s": "\ud800"}]}, "field l.element.s: 'utf-8' codec"),
        ({"m": {1: {}}}, "field m.key: 1 is of type int: make it a str"),
        ({"m": {None: {}}}, "field m.key: it is None"),
        ({"m": [("k", {})]}, "field m: .* is of type list: make it a dict"),
        (Row(1, 2), r"value: <Row\(1, 2\)> has no names: give them"),
        (5, "a record does not fit its schema: value: 5 is of type int: make it a dict or a Row"),
        (b"", "value: b'' is of type bytes: make it a dict or a Row"),
    ],
)
def test_what_does_not_fit_is_named(value, why):
    with pytest.raises(UnwritableRowError, match=why):
        made(value, **PROTOBUF)


def test_times_and_numbers_of_avro_are_those_of_their_type():
    fields = {
        "d": {"type": "int", "logicalType": "date"}, "t": {"type": "long", "logicalType": "local-timestamp-micros"},
        "n": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "f": "float", "o": "null",
    }  # fmt: skip
    schema = {"type": "record", "name": "R", "fields": [{"name": n, "type": of} for n, of in fields.items()]}
    avro = {"valueFormat": "avro", "valueSchema": json.dumps(schema)}
    sound = {"d": date(1970, 1, 2), "t": datetime(1970, 1, 1, 0, 0, 1), "n": 5, "f": 1, "o": None}
    assert made(sound, **avro) == b"\x02\x80\x89\x7a\x04\x01\xf4\0\0\x80\x3f"
    for changed, why in (
        ({"d": datetime(1970, 1, 2)}, "field d: .* is of type datetime: make it a date"),
        ({"t": datetime(1970, 1, 2, tzinfo=UTC)}, "field t: .* has a zone, and the schema's times have none"),
        ({"n": Decimal("123.45")}, "field n: "),
        ({"f": "1"}, "field f: '1' is of type str: make it a float or an int"),
        ({"f": 1e300}, r"field f: 1e\+300 is out of range for a float"),
        ({"f": -(10**400)}, "field f: -1000000.* is out of range for a float"),
        ({"o": 0}, "field o: 0 is of type int: make it None"),
    ):
        with pytest.raises(UnwritableRowError, match=why):
            made(sound | changed, **avro)


def test_a_field_that_is_left_out_has_its_default_but_in_an_array_it_is_null():
    inner = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int", "default": 5}]}
    fields = [{"name": "one", "type": inner}, {"name": "many", "type": {"type": "array", "items": "I"}}]
    avro = {"valueFormat": "avro", "valueSchema": json.dumps({"type": "record", "name": "R", "fields": fields})}
    assert made({"one": {}, "many": [{"x": 1}]}, **avro) == b"\x0a\x02\x02\0"
    with pytest.raises(UnwritableRowError, match="field many.element.x: it is null, and the schema has int here"):
        made({"one": {}, "many": [{}]}, **avro)


def test_json_has_rows_as_objects_and_times_as_they_are():
    value = {
        "in": Row(x=1, y=[Row(z=2)]), "of": [Row(a=1), {"a": None}], "at": clock(1, 2, 3), "empty": {}, "none": [],
    }  # fmt: skip
    assert made(value, valueFormat="json") == (
        b'{"in":{"x":1,"y":[{"z":2}]},"of":[{"a":1},{}],"at":"01:02:03","empty":{},"none":[]}'
    )


def test_what_json_does_not_have_is_named():
    endless = []
    endless.append(endless)
    for value, why in (
        ({"a": {"b": UUID(int=5)}}, r"value, field a.b: UUID\(.*\) is of a type that is not written as JSON"),
        ({"a": endless}, "value: JSON is written of at most 100 levels"),
        ({"a": {"b": 2**70}}, "value, field a.b: "),
        ({"a": {"b": [1, "x"]}}, "value, field a.b: Could not convert 'x'"),
        ({"a": Decimal("NaN")}, "value, field a: "),
        ({"a": {1: 2}}, "value, field a: 1 is of type int: make it a str, as JSON's names are"),
        ({"a": [timedelta(1)]}, "value: the field a.element is interval day to second, which is not written as JSON"),
        ("text", "value: JSON is written of a struct, an array or a map, not of string"),
    ):
        with pytest.raises(UnwritableRowError, match=why):
            made(value, valueFormat="json")


def proto(text):
    return {"valueFormat": "protobuf", "valueSchema": f'syntax = "proto3"; {text}'}


def test_messages_without_fields_and_large_numbers_are_written():
    marks = proto("message R { oneof k { E on = 1; E off = 2; } repeated E l = 3; fixed64 f = 4; message E {} }")
    assert made({"off": {}, "l": [{}, {}], "f": 2**64 - 1}, **marks) == b"\x12\0\x1a\0\x1a\0\x21" + b"\xff" * 8
    assert made({}, **proto("message R {}")) == b""


def test_a_message_that_is_in_itself_is_written_as_deep_as_the_value_is():
    tree = proto("message R { R r = 1; int32 a = 2; repeated R l = 3; }")
    assert made({"a": 1}, **tree) == b"\x10\x01"
    assert made({"r": {"l": [{"r": {"a": 1}}]}}, **tree) == b"\x0a\x06\x1a\x04\x0a\x02\x10\x01"
    with pytest.raises(UnwritableRowError, match="it has the field r.r.b, and the schema has not"):
        made({"r": {"r": {"b": 1}}}, **tree)
    struct = proto('import "google/protobuf/struct.proto"; message R { google.protobuf.Struct s = 1; }')
    assert made({"s": {"fields": {"k": {"list_value": {"values": [{"bool_value": True}]}}}}}, **struct) == (
        b"\x0a\x0d\x0a\x0b\x0a\x01k\x12\x06\x32\x04\x0a\x02\x20\x01"
    )


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"headers": None}, "headers are None: make them pairs"),
        ({"headers": [()]}, "headers are .* make them pairs"),
        ({"topic": ["out"]}, r"topic is \['out'\], which is not a topic name"),
        ({"topic": "a b"}, "topic is 'a b', which is not a topic name"),
        ({"partition": -1}, "partition is -1"),
    ],
)
def test_other_fields_that_are_wrong_stop_the_query(changed, why):
    elsewhere = Elsewhere()
    given = formats(valueFormat="avro", **{"schema.registry.url": "http://127.0.0.1:1"})  # which is not asked
    with pytest.raises(ProcessingError, match=why):
        rows_of_work(
            lambda record: ProducerRecord({}, **changed), records(1), elsewhere, group="g", topic="out", formats=given
        )
    assert not elsewhere.sent


def test_files_are_read_where_the_processor_is_made_and_schemas_are_checked_there(tmp_path):
    (tmp_path / "r.proto").write_text(PROTO)
    given = formats(valueFormat="protobuf", valueSchema=f"file:{tmp_path}/r.proto")
    (tmp_path / "r.proto").unlink()
    [record] = OutputEncoder(given).encoded([ProducerRecord({"a": 1})])
    assert record.value == b"\x08\x01"
    for wrong, why in (
        ({"valueFormat": "avro", "valueSchema": "{"}, "column value cannot be written with valueSchema"),
        ({"valueFormat": "avro", "valueSchema": "file:/nowhere"}, r"valueSchema \('/nowhere'\) cannot be read"),
        (proto("message R {} messag"), "column value cannot be written with valueSchema: line 1"),
        (PROTOBUF | {"valueMessage": "S"}, None),
        (PROTOBUF | {"valueMessage": "Nothing"}, "the schema has no message Nothing"),
    ):
        if why is None:
            formats(**wrong)
            continue
        with pytest.raises(OptionError, match=why):
            formats(**wrong)


def test_a_batch_waits_for_a_registry_as_its_sink_does_and_a_stream_without_end():
    given = {"topic": "out", "valueFormat": "avro", "schema.registry.url": "http://127.0.0.1:1"}
    written = TopicsWritten.from_options(PLAIN, given, ())
    assert written.formats_of_a_batch.options.producing.max_block_ms == 60_000
    assert written.formats_of_a_stream.options.producing.max_block_ms == 2**31 - 1


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("away", [(503, b"away"), (404, b"<html>")])
def test_handlers_do_not_stall_while_a_registry_is_away(is_async, away, monkeypatch):
    monkeypatch.setattr(TaskContext, "_taskContext", None)
    properties = {"spark.jobGroup.id": f"run of {is_async} {away}", "streaming.sql.batchId": "1"}
    TaskContext._getOrCreate()._localProperties = properties
    handled, lock = [], threading.Lock()

    def returned(record):
        with lock:
            handled.append(record)
        return ProducerRecord({"a": 1, "in": {}})

    async def returned_later(record):
        return returned(record)

    answer = json.dumps({"schema": AVRO, "id": 7, "version": 1, "subject": "out-value"}).encode()
    until = time.monotonic() + 0.6
    with front("http://127.0.0.1:1") as registry:
        registry.instead = lambda _: away if time.monotonic() < until else (200, answer)
        pauses = {"schema.registry.retries.wait.ms": "50", "schema.registry.retries.max.wait.ms": "50"}
        given = formats(valueFormat="avro", **pauses, **{"schema.registry.url": registry.url})
        rows, queue, _ = rows_of_work(
            returned_later if is_async else returned, records(9), group="g", topic="out", formats=given,
            stall_timeout_ms=100, threads=3,
        )  # fmt: skip
        asked = len(registry.asked)
        rows_of_work(returned, records(9), group="g", topic="out", formats=given)  # the next task of the run
    assert [row.value for row in rows] == [b"\0\0\0\0\7\x02\x0e\0\x0a"] * 9
    assert (len(handled), queue.counts.done, queue.counts.stalled) == (18, 9, 0)
    assert asked > 1
    assert len(registry.asked) == asked


@pytest.mark.parametrize("is_async", [False, True])
def test_a_record_whose_result_does_not_fit_is_a_dead_letter_at_once(is_async):
    def returned(record):
        return ProducerRecord({"e": "Z" if record.value == b"3" else "Y"})

    async def returned_later(record):
        return returned(record)

    elsewhere = Elsewhere()
    rows, queue, _ = rows_of_work(
        returned_later if is_async else returned, records(9), elsewhere,
        group="g", topic="out", dead_letter_topic="dead", formats=formats(**PROTOBUF),
    )  # fmt: skip
    assert [row.value for row in rows if row.topic == "out"] == [b"\x20\x01"] * 8
    assert (queue.counts.done, queue.counts.dead, queue.counts.tries_again) == (8, 1, 0)
    assert [(record.value, failure.fatal) for record, failure in elsewhere.sent] == [(b"3", True)]


def test_a_schema_that_cannot_be_had_stops_the_query():
    given = {"schema.registry.url": "http://127.0.0.1:1", "kafka.max.block.ms": 1, "valueFormat": "avro"}
    with pytest.raises(ProcessingError, match="what handlers return cannot be written to topic out: "):
        rows_of_work(lambda record: ProducerRecord({}), records(1), group="g", topic="out", formats=formats(**given))
