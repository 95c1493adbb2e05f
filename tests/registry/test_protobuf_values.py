"""Protobuf values that Confluent's serializer writes, as columns, with schemas of a real registry."""

from dataclasses import replace

import pyarrow as pa
import pytest
from support import Record, name, options, produce, topic_with
from support.protobuf_messages import classes, compiled
from support.written_values import PROTOBUF, Written, confluent_protobuf

from spark_kafka_group import GroupKafkaDataSource
from spark_kafka_group.errors import GroupKafkaError, MalformedValueError
from spark_kafka_group.executor.schemas.typed_columns import resolved, spark_types
from spark_kafka_group.executor.values.typed_batches import TypedBatches
from spark_kafka_group.options import Options

WHO = 'syntax = "proto3"; package people; message Who { string name = 1; }'
ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "who.proto";
message Order {
  int64 id = 1; people.Who who = 2; map<string, int32> tags = 3;
  message Line { string what = 1; }
  repeated Line lines = 4; google.protobuf.Timestamp at = 5; optional State state = 6;
}
enum State { NEW = 0; DONE = 1; }
message Other { string what = 1; }
"""
MORE = ORDER.replace("int64 id = 1;", "int64 id = 1; string more = 7;")
TYPE = (
    "struct<id:bigint,who:struct<name:string>,tags:map<string,int>,lines:array<struct<what:string>>,at:timestamp,"
    "state:string>"
)


def made(text):
    return classes(compiled({"shop.proto": text, "who.proto": WHO}, "shop.proto"))


MESSAGES = made(ORDER)


def order(number, message="shop.Order", messages=MESSAGES, **more):
    return messages[message](id=number, who={"name": f"n{number}"}, tags={"a": number}, state=1, **more)


def register(registry, topic, text=ORDER):
    subject = name("who")
    registry.register(subject, WHO, PROTOBUF)
    version = len(registry.ask(f"/subjects/{subject}/versions"))
    reference = {"name": "who.proto", "subject": subject, "version": version}
    return registry.register(f"{topic}-value", text, PROTOBUF, [reference])


def batches_of(registry, topic, **more):
    url = {"schema.registry.url": registry.url} if registry else {}
    parsed = Options.parse(
        {"kafka.bootstrap.servers": "a:1", "subscribe": topic, "valueFormat": "protobuf", **url, **more}
    )
    return replace(parsed, typed=resolved(parsed))


def batch_of(written):
    count = len(written)
    headers = pa.array([[{"key": key, "value": value} for key, value in one.headers] for one in written])
    return pa.RecordBatch.from_pydict(
        {
            "value": pa.array([one.value for one in written], pa.binary()),
            "headers": headers.cast(pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
            "topic": pa.array(["t"] * count),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
        }
    )


def read(given, written):
    return TypedBatches(given).as_objects(batch_of(written))["value"]


def test_a_schema_as_text_with_references_is_the_type_of_the_column(registry):
    topic = name("orders")
    register(registry, topic)
    given = batches_of(registry, topic)
    assert spark_types(given)["value"].simpleString() == TYPE
    assert given.typed[0].message == "shop.Order"
    other = batches_of(registry, topic, valueMessage="Order.Line")
    assert spark_types(other)["value"].simpleString() == "struct<what:string>"


def test_values_of_a_serializer_that_registers_descriptors_are_read(apicurio):
    topic = name("orders")
    written = confluent_protobuf(apicurio, topic, [order(1), None, order(2, at={"seconds": 1_700_000_000})])
    rows = read(batches_of(apicurio, topic), written)
    assert [row and (row["id"], row["who"], row["tags"], row["state"]) for row in rows] == [
        (1, {"name": "n1"}, [("a", 1)], "DONE"), None, (2, {"name": "n2"}, [("a", 2)], "DONE"),
    ]  # fmt: skip
    assert [row and row["at"] and int(row["at"].timestamp()) for row in rows] == [None, None, 1_700_000_000]


def test_values_are_read_by_a_guid_and_message_indexes_in_a_header(srfake):
    topic = name("orders")
    confluent_protobuf(srfake, topic, [order(0)])  # which registers the schema
    written = confluent_protobuf(srfake, topic, [order(1), None], in_headers=True)
    assert read(batches_of(srfake, topic, valueFraming="confluent-header"), written)[0]["id"] == 1
    ((key, value),) = written[0].headers
    # This client counts entries of maps, and Java's does not: Line is the second message in Order, or the first.
    paths = (b"\4\0\2", b"\4\0\0", b"\4\0\4", b"\2", b"\0\0")
    lines = [Written(b"\x0a\1x", [(key, value[:-1] + path)]) for path in paths]
    given = batches_of(srfake, topic, valueFraming="confluent-header", valueMessage="shop.Order.Line")
    assert read(given, lines) == [{"what": "x"}, {"what": "x"}, None, None, None]


class TestMessageIndexes:
    def test_of_another_message_make_a_value_malformed(self, apicurio):
        topic = name("orders")
        written = confluent_protobuf(apicurio, topic, [MESSAGES["shop.Other"](what="x"), MESSAGES["shop.Other"]()])
        given = batches_of(apicurio, topic)
        assert read(given, written) == [None, None]
        with pytest.raises(MalformedValueError, match=r"its message indexes \[1\] are not those of shop.Order"):
            list(TypedBatches(given).decoded([batch_of(written)]))
        assert read(batches_of(apicurio, topic, valueMessage="Other"), written) == [{"what": "x"}, {"what": None}]

    def test_are_looked_up_in_the_schema_that_a_value_was_written_with(self, registry, caplog):
        """Which has other messages before it, and more fields."""
        topic = name("orders")
        earlier = MORE.replace("message Order {", "message First { string x = 1; } message Order {")
        number = register(registry, topic, earlier)
        register(registry, topic)
        given = batches_of(registry, topic)
        body = order(1, messages=made(MORE), more="m").SerializeToString()
        start = b"\0" + number.to_bytes(4)
        written = [Written(start + indexes + body, []) for indexes in (b"\2\2", b"\0", b"\2\x12", b"\x80\0")]
        rows = read(given, written)
        assert [row and row["id"] for row in rows] == [1, None, None, None]
        assert [record.getMessage().partition("left out: ")[2] for record in caplog.records] == [
            "Order.more. A query that is started again has them"
        ]
        with pytest.raises(MalformedValueError, match=r"schema \d+ .*its message is shop.First, and .* has shop.Order"):
            list(TypedBatches(given).decoded([batch_of(written[1:])]))

    def test_are_those_of_the_message_in_its_file_where_there_is_no_registry(self, tmp_path):
        path = tmp_path / "set"
        path.write_bytes(compiled({"shop.proto": ORDER, "who.proto": WHO}, "shop.proto"))
        given = batches_of(
            None, "t", valueDescriptorFile=str(path), valueMessage="shop.Other", valueFraming="confluent"
        )
        body = MESSAGES["shop.Other"](what="x").SerializeToString()
        written = [Written(b"\0\0\0\0\7" + start + body, []) for start in (b"\2\2", b"\0", b"\2", b"")]
        assert read(given, written) == [{"what": "x"}, None, None, None]


@pytest.fixture
def orders(kafka, apicurio):
    """A topic with two orders and a broken value."""
    topic = topic_with(kafka, [], partitions=1)
    written = confluent_protobuf(apicurio, topic, [order(1), order(2)])
    produce(kafka, topic, [Record(0, b"k", one.value) for one in written])
    produce(kafka, topic, [Record(0, b"k", written[0].value[:-1])])
    return topic


def test_a_batch_read_in_spark_has_the_columns(spark, kafka, apicurio, orders, tmp_path):
    given = options(kafka, orders, valueFormat="protobuf", onMalformedValue="null")
    given |= {"schema.registry.url": apicurio.url}
    rows = spark.read.format("groupkafka").options(**given).load()
    assert rows.schema["value"].dataType.simpleString() == TYPE
    found = rows.select("value.id", "value.who.name", "value.tags", "value.state", "value.lines").collect()
    assert [tuple(row) for row in found] == [
        (1, "n1", {"a": 1}, "DONE", []), (2, "n2", {"a": 2}, "DONE", []), (None,) * 5,
    ]  # fmt: skip
    path = tmp_path / "set"
    path.write_bytes(compiled({"shop.proto": ORDER, "who.proto": WHO}, "shop.proto"))
    more = {"valueDescriptorFile": str(path), "valueMessage": "Order", "enums.as.ints": "true"}
    chosen = given | more | {"columns": "value.state,value.who.name,rawValue", "keyFormat": "string"}
    rows = spark.read.format("groupkafka").options(**chosen).load()
    assert rows.schema["value"].dataType.simpleString() == "struct<who:struct<name:string>,state:int>"
    assert [row.value and (row.value.state, row.value.who.name) for row in rows.collect()] == [
        (1, "n1"),
        (1, "n2"),
        None,
    ]


def test_times_types_and_nulls_are_sparks(spark, kafka):
    text = """syntax = "proto3"; import "google/protobuf/duration.proto"; import "google/protobuf/wrappers.proto";
        message M { google.protobuf.Duration d = 1; uint32 u = 2; uint64 v = 3; google.protobuf.Int64Value w = 4;
          map<uint64, bool> m = 5; repeated google.protobuf.Duration all = 6; bytes raw = 7; int32 zero = 8; }"""
    message = classes(compiled({"m.proto": text}, "m.proto"))["M"]
    value = message(
        d={"seconds": -2, "nanos": -500_000_000}, u=2**32 - 1, v=2**64 - 1, w={"value": 5}, m={2**64 - 1: True},
        all=[{"seconds": 1}], raw=b"\0",
    )  # fmt: skip
    topic = topic_with(kafka, [Record(0, None, value.SerializeToString())], partitions=1)
    flags = ("upcast.unsigned.ints", "unwrap.primitive.wrapper.types", "emit.default.values")
    for flag, found in (("false", (-1, -1, "{5}", None)), ("true", (2**32 - 1, 2**64 - 1, "5", 0))):
        given = options(kafka, topic, valueFormat="protobuf", valueSchema=text, **dict.fromkeys(flags, flag))
        rows = spark.read.format("groupkafka").options(**given).load()
        row = rows.selectExpr(
            "value.u", "cast(value.v as decimal(20,0)) v", "cast(value.w as string) w", "value.zero",
            "cast(value.d as string) d", "cast(value.all as string) all", "value.m", "value.raw",
        ).first()  # fmt: skip
        assert tuple(row)[:4] == found
        assert (row.d, row.all) == ("INTERVAL '-0 00:00:02.5' DAY TO SECOND", "[INTERVAL '0 00:00:01' DAY TO SECOND]")
        assert (list(row.m.values()), row.raw) == ([True], b"\0")


REFUSED = {
    "no source of a schema": ({}, "needs schema.registry.url, valueDescriptorFile or valueSchema"),
    "a descriptor file without a message": ({"valueDescriptorFile": "/x"}, "needs valueMessage, the name of the"),
    "a descriptor file that is not there": (
        {"valueDescriptorFile": "/nowhere", "valueMessage": "M"}, "valueDescriptorFile .*cannot be read: No such file"
    ),
    "a file that has no descriptors": (
        {"valueDescriptorFile": __file__, "valueMessage": "M"}, "valueDescriptorFile: it is no FileDescriptorSet"
    ),
    "a message that is not there": ({"valueSchema": WHO, "valueMessage": "No"}, "has no message No: it has people.Who"),
    "two schemas": ({"valueSchema": WHO, "valueDescriptorFile": "/x", "valueMessage": "M"}, "both given: one of them"),
    "an option of another format": ({"valueFormat": "string", "valueMessage": "M"}, "needs valueFormat, json, avro or"),
    "an option that Avro does not have": (
        {"valueFormat": "avro", "valueSchema": '"int"', "valueMessage": "M"}, "valueMessage needs valueFormat=protobuf"
    ),
    "from_protobuf's option for another format": (
        {"valueFormat": "string", "enums.as.ints": "true"}, "enums.as.ints needs valueFormat or keyFormat, protobuf"
    ),
    "JSON of an Any": ({"valueSchema": WHO, "convert.any.fields.to.json": "true"}, "must be false: an Any is a struct"),
    "a depth that Spark does not have": ({"valueSchema": WHO, "recursive.fields.max.depth": "11"}, "between 1 and 10"),
    "a text that is no schema": ({"valueSchema": "message {"}, "valueSchema: line 1 of the .proto text"),
}  # fmt: skip


@pytest.mark.parametrize(("given", "message"), REFUSED.values(), ids=REFUSED)
def test_before_data_moves_a_sentence_says_what_to_change_about(given, message):
    every = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "valueFormat": "protobuf", **given}
    with pytest.raises(GroupKafkaError, match=message):
        GroupKafkaDataSource(every).schema()
