"""Rows that the sink encodes with schemas of real registries, read by Confluent's deserializers and the source."""

import base64
import json
import re
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from support import Record, name, options, produce, topic_with
from support.protobuf_messages import classes, compiled
from support.written_values import confluent

from spark_kafka_group import GroupKafkaDataSource, ProducerRecord
from spark_kafka_group.errors import GroupKafkaError, OptionError
from spark_kafka_group.executor.schemas.ddl import schema_of
from spark_kafka_group.executor.schemas.registry import Registry
from spark_kafka_group.options.schema_registry import SchemaRegistry, urls
from spark_kafka_group.processing.processor_settings import TopicsWritten
from spark_kafka_group.processing.typed_output import OutputEncoder

PAGE = (Path(__file__).parents[2] / "docs/values.md").read_text()
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "amount", "type": ["null", "double"], "default": None},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "note", "type": "string", "default": "-"},
    ],
}
ORDER_JSON = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "integer"}},
}
ORDERS = (
    "named_struct('id', id, 'amount', IF(id = 1, NULL, id / 2), 'state', IF(id = 0, 'NEW', 'PAID'), "
    "'tags', map('k', CAST(id AS STRING)))"
)
EXPECTED = [
    {"id": n, "amount": None if n == 1 else n / 2, "state": "PAID" if n else "NEW", "tags": {"k": str(n)}, "note": "-"}
    for n in range(3)
]

ORDER_PROTO = """syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Other { string x = 1; }
message Order {
  int64 id = 1; optional double amount = 2; State state = 3; map<string, string> tags = 4; string note = 5;
  enum State { NEW = 0; PAID = 1; }
  google.protobuf.Timestamp at = 6;
}
"""
ORDER_CLASS = classes(compiled({"order.proto": ORDER_PROTO}, "order.proto"))["Order"]
MESSAGES = [
    ORDER_CLASS(id=n, amount=None if n == 1 else n / 2, state="PAID" if n else "NEW", tags={"k": str(n)})
    for n in range(3)
]
OF_MESSAGES = [
    row | {"id": row["id"] or None, "state": "PAID" if row["id"] else None, "note": None, "at": None}
    for row in EXPECTED
]
"""What the source makes of them."""
OF_PROTOBUF = {"valueFormat": "protobuf", "valueMessage": "Order"}


def sink(kafka, registry, topic=None, **more):
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "schema.registry.url": registry.url}
    return given | ({"topic": topic} if topic else {}) | {"valueFormat": "avro"} | more


def write(df, given):
    df.write.format("groupkafka").options(**given).mode("append").save()


def records(spark, kafka, topic):
    """Keys, values and headers of a topic of one partition, in order."""
    given = options(kafka, topic, includeHeaders=True)
    rows = spark.read.format("groupkafka").options(**given).load().orderBy("offset").collect()
    return [
        (
            row.key and bytes(row.key),
            row.value and bytes(row.value),
            [(h.key, bytes(h.value)) for h in row.headers or ()],
        )
        for row in rows
    ]


def read_by_confluent(registry, topic, found, kind="AVRO", of_key=False, message=None):
    """What confluent-kafka's deserializers make of keys or values, with the header of an id or without.

    That of Protobuf asks the registry only where it has descriptors, which are all that this client reads.
    """
    from confluent_kafka.schema_registry import SchemaRegistryClient, dual_schema_id_deserializer
    from confluent_kafka.schema_registry.avro import AvroDeserializer
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    conf = {"schema.id.deserializer": dual_schema_id_deserializer}
    with SchemaRegistryClient({"url": registry.url}) as client:
        if message is not None:
            conf["use.deprecated.format"] = False
            make = ProtobufDeserializer(message, conf, client if kind == "DESCRIPTORS" else None)
        elif kind == "AVRO":
            make = AvroDeserializer(client, conf=conf)
        else:
            make = JSONDeserializer(None, schema_registry_client=client, conf=conf)
        field = MessageField.KEY if of_key else MessageField.VALUE
        return [
            make(key if of_key else value, SerializationContext(topic, field, headers)) for key, value, headers in found
        ]


def read_by_source(spark, kafka, registry, topic, **more):
    """The structs that the source makes of the values of a topic of one partition, in order."""
    given = options(kafka, topic, **{"valueFormat": "avro", "schema.registry.url": registry.url} | more)
    rows = spark.read.format("groupkafka").options(**given).load().orderBy("offset").collect()
    return [row.value.asDict() for row in rows]


def orders(spark, rows=3):
    return spark.range(rows).selectExpr("id", f"{ORDERS} AS value").orderBy("id").coalesce(1).select("value")


@pytest.fixture
def topic(kafka):
    return kafka.create_topic(name("written"), partitions=1)


class TestAvro:
    def test_of_the_subjects_latest_schema_is_read_by_confluent_and_by_the_source(self, spark, kafka, registry, topic):
        registry.register(f"{topic}-value", ORDER)
        write(orders(spark), sink(kafka, registry, topic))
        found = records(spark, kafka, topic)
        assert read_by_confluent(registry, topic, found) == EXPECTED
        assert read_by_source(spark, kafka, registry, topic) == EXPECTED

    def test_has_the_guid_in_a_header_and_the_other_headers_stay(self, spark, kafka, srfake, topic):
        srfake.register(f"{topic}-value", ORDER)
        rows = orders(spark).selectExpr(
            "value",
            "array(named_struct('key', 'own', 'value', X'01'), "
            "named_struct('key', '__value_schema_id', 'value', X'00')) headers",
        )
        write(rows, sink(kafka, srfake, topic, valueFraming="confluent-header"))
        found = records(spark, kafka, topic)
        assert [[key for key, _ in headers] for *_, headers in found] == [["own", "__value_schema_id"]] * 3
        assert {(headers[1][1][0], len(headers[1][1])) for *_, headers in found} == {(1, 17)}
        assert read_by_confluent(srfake, topic, found) == EXPECTED

    def test_has_the_id_in_a_header_where_a_registry_does_not_say_guids(self, spark, kafka, apicurio, topic):
        apicurio.register(f"{topic}-value", ORDER)
        write(orders(spark), sink(kafka, apicurio, topic, valueFraming="confluent-header"))
        found = records(spark, kafka, topic)
        assert {(headers[0][1][0], len(headers[0][1])) for *_, headers in found} <= {(0, 5), (1, 17)}
        assert read_by_source(spark, kafka, apicurio, topic, valueFraming="confluent-header") == EXPECTED

    def test_registers_the_schema_of_the_column_where_that_is_asked_for(self, spark, kafka, registry, topic):
        rows = spark.sql("SELECT named_struct('id', 7L, 'who', named_struct('name', 'x')) value, 'k' key")
        given = sink(kafka, registry, topic, keyFormat="avro", **{"schema.registry.auto.register": "true"})
        write(rows, given)
        found = records(spark, kafka, topic)
        assert read_by_confluent(registry, topic, found) == [{"id": 7, "who": {"name": "x"}}]
        assert read_by_confluent(registry, topic, found, of_key=True) == ["k"]
        latest = Registry(SchemaRegistry(url=urls(registry.url))).latest(f"{topic}-value")
        assert json.loads(latest.text)["name"] == "topLevelRecord"

    def test_of_a_given_schema_needs_that_its_subject_has_it_unless_it_is_registered(
        self, spark, kafka, apicurio, topic
    ):
        given = sink(kafka, apicurio, topic, valueSchema=json.dumps(ORDER), valueSubject=f"{topic}-orders")
        with pytest.raises(AnalysisException, match=f"{topic}-orders.* set schema.registry.auto.register=true"):
            write(orders(spark), given)
        write(orders(spark), given | {"schema.registry.auto.register": "true"})
        write(orders(spark), given)
        assert read_by_confluent(apicurio, topic, records(spark, kafka, topic)) == EXPECTED * 2

    def test_without_a_registry_is_bare(self, spark, kafka, topic):
        given = sink(
            kafka,
            type("No", (), {"url": ""}),
            topic,
            valueSchema='{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}',
        )
        del given["schema.registry.url"]
        write(spark.sql("SELECT named_struct('a', 7) value"), given)
        assert [value for _, value, _ in records(spark, kafka, topic)] == [b"\x0e"]

    def test_has_the_schema_of_each_rows_topic(self, spark, kafka, apicurio, topic):
        other = kafka.create_topic(name("written"), partitions=1)
        apicurio.register(f"{topic}-value", ORDER)
        fields = [*reversed(ORDER["fields"]), {"name": "more", "type": ["null", "int"]}]
        apicurio.register(f"{other}-value", ORDER | {"fields": fields})
        rows = spark.range(3).selectExpr(f"{ORDERS} value", f"explode(array('{topic}', '{other}')) topic").coalesce(1)
        write(rows, sink(kafka, apicurio))
        for each, more in ((topic, {}), (other, {"more": None})):
            found = read_by_confluent(apicurio, each, records(spark, kafka, each))
            assert sorted(found, key=lambda row: row["id"]) == [row | more for row in EXPECTED]


class TestJson:
    def test_has_no_id_without_a_registry_and_a_null_is_a_tombstone(self, spark, kafka, topic):
        rows = spark.sql(
            "SELECT * FROM VALUES ('a', named_struct('id', 1, 't', TIMESTAMP'2026-01-02 03:04:05Z')), ('b', NULL) "
            "AS t(key, value)"
        )
        given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic, "valueFormat": "json"}
        write(rows.coalesce(1), given | {"timeZone": "+01:00", "keyFormat": "string"})
        assert [each[:2] for each in records(spark, kafka, topic)] == [
            (b"a", b'{"id":1,"t":"2026-01-02T04:04:05.000+01:00"}'), (b"b", None),
        ]  # fmt: skip

    def test_has_the_id_of_a_json_schema(self, spark, kafka, registry, topic):
        registry.register(f"{topic}-value", ORDER_JSON, "JSON")
        write(spark.sql("SELECT named_struct('id', 7) value"), sink(kafka, registry, topic, valueFormat="json"))
        assert read_by_confluent(registry, topic, records(spark, kafka, topic), "JSON") == [{"id": 7}]


class TestProtobuf:
    @pytest.mark.parametrize("framing", ["confluent", "confluent-header"])
    def test_of_the_subjects_latest_schema_is_read_by_confluent_and_by_the_source(
        self, spark, kafka, registry, topic, framing
    ):
        registry.register(f"{topic}-value", ORDER_PROTO, "PROTOBUF")
        more = OF_PROTOBUF | {"valueFraming": framing}
        write(orders(spark), sink(kafka, registry, topic, **more))
        found = records(spark, kafka, topic)
        assert read_by_confluent(registry, topic, found, message=ORDER_CLASS) == MESSAGES
        assert read_by_source(spark, kafka, registry, topic, **more) == OF_MESSAGES

    @pytest.mark.parametrize("framing", ["confluent", "confluent-header"])
    def test_of_a_schema_that_is_registered_as_descriptors_is_read_by_confluent(
        self, spark, kafka, srfake, topic, framing
    ):
        file = ORDER_CLASS.DESCRIPTOR.file.serialized_pb
        srfake.register(f"{topic}-value", base64.b64encode(file).decode(), "PROTOBUF")
        given = OF_PROTOBUF | {"valueFraming": framing}
        write(orders(spark), sink(kafka, srfake, topic, **given))
        found = read_by_confluent(srfake, topic, records(spark, kafka, topic), "DESCRIPTORS", message=ORDER_CLASS)
        assert found == MESSAGES

    def test_that_handlers_return_has_the_header_of_its_schema(self, srfake, topic):
        srfake.register(f"{topic}-value", ORDER_PROTO, "PROTOBUF")
        given = OF_PROTOBUF | {"valueFraming": "confluent-header"}
        formats = TopicsWritten.from_options(
            {"kafka.bootstrap.servers": "a:1", "kafka.group.id": "g", "subscribe": "t"},
            {"schema.registry.url": srfake.url, "topic": topic} | given, (),
        ).formats_of_a_stream  # fmt: skip
        made = OutputEncoder(formats).encoded(
            tuple(
                ProducerRecord(row | {"note": ""}, headers=[("own", b"1"), ("__value_schema_id", b"")])
                for row in EXPECTED
            )
        )
        assert [[key for key, _ in one.headers] for one in made] == [["own", "__value_schema_id"]] * 3
        found = [(None, one.value, one.headers) for one in made]
        assert read_by_confluent(srfake, topic, found, message=ORDER_CLASS) == MESSAGES

    def test_of_a_given_schema_is_registered_and_a_null_is_a_tombstone(self, spark, kafka, apicurio, topic):
        given = sink(kafka, apicurio, topic, valueSchema=ORDER_PROTO, **OF_PROTOBUF)
        rows = orders(spark).selectExpr("IF(value.id = 1, NULL, value) value")
        with pytest.raises(AnalysisException, match="set schema.registry.auto.register=true"):
            write(rows, given)
        write(rows, given | {"schema.registry.auto.register": "true"})
        write(rows, given)
        found = records(spark, kafka, topic)
        expected = [MESSAGES[0], None, MESSAGES[2]]
        assert read_by_confluent(apicurio, topic, found, message=ORDER_CLASS) == expected * 2

    def test_registers_a_schema_of_the_column_where_that_is_asked_for(self, spark, kafka, registry, topic):
        at = "TIMESTAMP'1969-01-02 03:04:05.678901Z'"
        rows = spark.sql(f"SELECT named_struct('id', 7L, 'who', named_struct('name', 'x', 'at', {at})) value")
        given = sink(kafka, registry, topic, valueFormat="protobuf", **{"schema.registry.auto.register": "true"})
        write(rows, given)
        given = options(kafka, topic, valueFormat="protobuf", **{"schema.registry.url": registry.url})
        read = spark.read.format("groupkafka").options(**given).load().select("value")
        assert read.collect() == rows.collect()

    def test_that_does_not_fit_is_named_before_a_row_of_its_task_is_sent(self, spark, kafka, srfake, topic):
        srfake.register(f"{topic}-value", ORDER_PROTO, "PROTOBUF")
        rows = spark.range(3).coalesce(1).selectExpr("named_struct('state', IF(id = 2, 'LOST', 'NEW')) value")
        with pytest.raises(PySparkException, match="field state: 'LOST' is no symbol of the schema's enum State"):
            write(rows, sink(kafka, srfake, topic, **OF_PROTOBUF))
        assert records(spark, kafka, topic) == []


class TestARowThatDoesNotFit:
    BROKEN = "IF(id = 2500, 'LOST', 'NEW')"

    @pytest.fixture
    def broken(self, spark):
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 100)
        yield (
            spark.range(3000)
            .coalesce(1)
            .selectExpr(f"named_struct('id', id, 'state', {self.BROKEN}, 'tags', map('k', 'v')) value")
        )
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")

    WHY = "column value, field state: 'LOST' is no symbol of the schema's enum State"

    def test_is_named_before_a_row_of_its_task_is_sent(self, spark, kafka, apicurio, topic, broken):
        apicurio.register(f"{topic}-value", ORDER)
        with pytest.raises(PySparkException, match=self.WHY):
            write(broken, sink(kafka, apicurio, topic, **{"kafka.linger.ms": "0", "kafka.batch.size": "100"}))
        assert records(spark, kafka, topic) == []

    def test_is_so_too_where_rows_name_their_topic(self, spark, kafka, apicurio, topic, broken):
        apicurio.register(f"{topic}-value", ORDER)
        with pytest.raises(PySparkException, match=self.WHY):
            write(broken.selectExpr("value", f"'{topic}' topic"), sink(kafka, apicurio))
        assert records(spark, kafka, topic) == []

    @pytest.mark.parametrize(("guarantee", "kind"), [("at-least-once", "AVRO"), ("exactly-once", "PROTOBUF")])
    def test_ends_a_stream_with_its_name(self, spark, kafka, apicurio, topic, tmp_path, guarantee, kind):
        schema, more = {"AVRO": (ORDER, {}), "PROTOBUF": (ORDER_PROTO, OF_PROTOBUF)}[kind]
        apicurio.register(f"{topic}-value", schema, kind)
        given = plain = sink(kafka, apicurio, topic, **more)
        if guarantee == "exactly-once":
            given |= {"deliveryGuarantee": guarantee, "kafka.transactional.id": name("id")}
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
        rows = rows.selectExpr("named_struct('id', value, 'state', 'LOST', 'tags', map('k', 'v')) value")
        with pytest.raises(StreamingQueryException, match=self.WHY):
            stream(rows, given, tmp_path).awaitTermination(60)
        write(orders(spark), plain)  # which an open transaction would hide
        read = options(kafka, topic, **{"kafka.isolation.level": "read_committed"})
        assert spark.read.format("groupkafka").options(**read).load().count() == 3


def test_what_the_page_reads_it_writes(spark, kafka, apicurio, group, topic, tmp_path):
    read, *_, write = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    fields = [{"name": "id", "type": "long"}, {"name": "amount", "type": ["null", "double"], "default": None}]
    rows = [{"id": number, "amount": number / 2} for number in range(3)]
    source = topic_with(kafka, [], partitions=1)
    values = confluent(apicurio, source, {"type": "record", "name": "Order", "fields": fields}, rows)
    produce(kafka, source, [Record(0, None, each.value) for each in values])
    code = (read + write).replace(".load()", '.option("startingOffsets", "earliest").load()')
    for old, new in {
        "localhost:9092": kafka.bootstrap_servers, "http://localhost:8081": apicurio.url, "/checkpoints": str(tmp_path),
        '"orders"': f'"{source}"', '"bills"': f'"{topic}"', '"billing"': f'"{group}"',
        ".awaitTermination()": ".processAllAvailable()",
    }.items():  # fmt: skip
        assert old in code
        code = code.replace(old, new)
    names = {"spark": spark}
    exec(code, names)
    names["query"].stop()
    assert read_by_confluent(apicurio, topic, records(spark, kafka, topic)) == rows


def stream(rows, given, folder):
    writer = rows.writeStream.format("groupkafka").options(**given).option("checkpointLocation", str(folder / "c"))
    return writer.trigger(availableNow=True).start()


MORE = {"name": "more", "type": "int", "default": 7}
NEWER = ORDER | {"fields": [*ORDER["fields"], MORE]}
NEWER_PROTO = ORDER_PROTO.replace("at = 6;", "at = 6; int32 more = 7;")


@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.parametrize(
    ("kind", "schemas", "more", "by_confluent", "by_source"),
    [
        ("AVRO", (ORDER, NEWER), {}, [*EXPECTED[:2], EXPECTED[2] | {"more": 7}],
         [row | {"more": 7} for row in EXPECTED]),
        ("PROTOBUF", (ORDER_PROTO, NEWER_PROTO), OF_PROTOBUF, MESSAGES,
         [row | {"more": None} for row in OF_MESSAGES]),
    ],
    ids=["avro", "protobuf"],
)  # fmt: skip
def test_a_stream_writes_its_micro_batches_with_the_schema_that_the_subject_has_then(
    spark, kafka, apicurio, topic, tmp_path, exactly_once, kind, schemas, more, by_confluent, by_source
):
    older, newer = schemas
    first = apicurio.register(f"{topic}-value", older, kind)
    given = sink(kafka, apicurio, topic, **more)
    if exactly_once:
        given |= {"deliveryGuarantee": "exactly-once", "kafka.transactional.id": name("id")}
    source = topic_with(kafka, [Record(0, None, str(n).encode()) for n in range(2)], partitions=1)

    def run():
        read = {"startingOffsets": "earliest", "subscribe": source, "kafka.bootstrap.servers": kafka.bootstrap_servers}
        rows = (
            spark.readStream.format("groupkafka").options(**read).load().selectExpr("cast(string(value) AS bigint) id")
        )
        stream(rows.selectExpr(f"{ORDERS} value"), given, tmp_path).awaitTermination(60)

    run()
    second = apicurio.register(f"{topic}-value", newer, kind)
    produce(kafka, source, [Record(0, None, b"2")])
    run()
    found = records(spark, kafka, topic)
    assert [int.from_bytes(value[1:5], "big") for _, value, _ in found] == [first, first, second]
    message = ORDER_CLASS if kind == "PROTOBUF" else None
    assert read_by_confluent(apicurio, topic, found, message=message) == by_confluent
    assert read_by_source(spark, kafka, apicurio, topic, **more) == by_source


REFUSED = {
    "a subject that is not there": (
        {}, "STRUCT<id: BIGINT>", "and column value needs its schema: register it, set schema.registry.auto"
    ),
    "a registry that does not listen": (
        {"schema.registry.url": "http://127.0.0.1:1", "schema.registry.max.retries": "0"}, "STRUCT<id: BIGINT>",
        "cannot be reached",
    ),
    "a schema that cannot take the column": (
        {"valueSchema": json.dumps(ORDER), "valueFraming": "none"}, "STRUCT<id: STRING>",
        "column value cannot be written with valueSchema: the field id is string, and the schema has long there",
    ),
    "a column that lacks a field": (
        {"valueSchema": json.dumps(ORDER), "valueFraming": "none"}, "STRUCT<id: BIGINT>",
        "the column lacks the field state, which the schema requires",
    ),
    "text as JSON": (
        {"valueFormat": "json", "valueFraming": "none"}, "STRING", "JSON is written of a struct, an array or a map"
    ),
    "a struct as text": (
        {"valueFormat": "string", "schema.registry.url": None}, "STRUCT<id: INT>",
        "valueFormat=string takes STRING: cast it",
    ),
    "a struct without a format": (
        {"valueFormat": "binary", "schema.registry.url": None}, "STRUCT<id: INT>",
        r"take to_json\(value\), or set valueFormat to json, avro or protobuf",
    ),
    "names that Avro does not have": (
        {"schema.registry.auto.register": "true"}, "STRUCT<`a b`: INT>", "'a b' is no Avro name"
    ),
    "types that Avro does not have": (
        {"schema.registry.auto.register": "true"}, "STRUCT<a: MAP<INT, INT>>", "Avro has no type for map<int,int>"
    ),
    "no registry and no schema": (
        {"schema.registry.url": None}, "STRUCT<id: INT>", "needs schema.registry.url, or valueSchema"
    ),
    "a zone that is none": (
        {"valueFormat": "json", "valueFraming": "none", "timeZone": "Nowhere"}, "STRUCT<id: INT>",
        r"timeZone \(Nowhere\) is no zone",
    ),
}  # fmt: skip


def test_a_schema_that_cannot_take_the_column_is_not_registered(kafka, srfake, topic):
    for kind, schema in (("avro", json.dumps(ORDER)), ("protobuf", ORDER_PROTO)):
        given = sink(kafka, srfake, topic, valueFormat=kind, valueSchema=schema, valueSubject=f"{topic}-{kind}")
        with pytest.raises(OptionError, match="column value cannot be written with valueSchema"):
            GroupKafkaDataSource(given | {"schema.registry.auto.register": "true"}).writer(
                schema_of("value STRUCT<id: ARRAY<STRING>>"), overwrite=False
            )
    assert not [subject for subject in srfake.ask("/subjects") if subject.startswith(topic)]


def test_a_subject_of_another_type_is_named(spark, kafka, srfake, topic):
    srfake.register(f"{topic}-value", ORDER_JSON, "JSON")
    with pytest.raises(AnalysisException, match="valueFormat=avro needs a schema of type AVRO, and subject"):
        write(orders(spark), sink(kafka, srfake, topic))


@pytest.mark.parametrize(("more", "kind", "message"), REFUSED.values(), ids=REFUSED)
def test_before_rows_move_a_sentence_says_what_to_change_about(kafka, apicurio, topic, more, kind, message):
    given = {key: each for key, each in (sink(kafka, apicurio, topic) | more).items() if each is not None}
    with pytest.raises(GroupKafkaError, match=message):
        GroupKafkaDataSource(given).writer(schema_of(f"value {kind}"), overwrite=False)
