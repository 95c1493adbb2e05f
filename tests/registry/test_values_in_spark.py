"""Typed columns in real Spark, with schemas of a real registry."""

import datetime
import json
import re
import tracemalloc
import urllib.request
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from support import Record, end_offset, name, options, produce, registries, topic_with
from support.http_answers import front
from support.written_values import confluent

from spark_kafka_group import GroupKafkaDataSource, GroupKafkaListener, explore, group_batch, read_where
from spark_kafka_group.errors import GroupKafkaError, OptionError, RegistryError
from spark_kafka_group.executor.schemas.typed_columns import resolved
from spark_kafka_group.executor.values.typed_batches import TypedBatches
from spark_kafka_group.options import Options
from spark_kafka_group.testing import wait_until
from spark_kafka_group.tools.submit import REDACTION, SECRET
from spark_kafka_group.values.schema import COLUMNS, EVERY

PAGE = (Path(__file__).parents[2] / "docs/values.md").read_text()
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "amount", "type": ["null", "double"], "default": None},
        {"name": "who", "type": {"type": "record", "name": "Who", "fields": [{"name": "name", "type": "string"}]}},
    ],
}


def order(number, **more):
    return {"id": number, "amount": int(number) / 2, "who": {"name": f"n{number}"}} | more


def with_fields(*fields):
    """ORDER with other fields behind its first."""
    return ORDER | {"fields": [ORDER["fields"][0], *fields]}


@pytest.fixture
def orders(kafka, apicurio):
    """A topic with three orders."""
    topic = name("orders")
    kafka.create_topic(topic, partitions=1)
    send(kafka, apicurio, topic, ORDER, [order(n) for n in range(3)])
    return topic


def send(kafka, registry, topic, schema, rows, **more):
    written = confluent(registry, topic, schema, rows, **more)
    produce(kafka, topic, [Record(0, None, each.value, headers=each.headers) for each in written])


def avro(kafka, registry, topic, group=None, **more):
    return options(kafka, topic, group, valueFormat="avro", **{"schema.registry.url": registry.url}, **more)


def load(spark, given):
    return spark.read.format("groupkafka").options(**given).load()


class TestColumnsOfABatchRead:
    def test_have_the_type_of_the_subjects_latest_schema(self, spark, kafka, apicurio, orders):
        produce(kafka, orders, [Record(0, b"tombstone", None)])
        rows = load(spark, avro(kafka, apicurio, orders)).select("value.*", "offset").collect()
        assert [(row.id, row.amount, row.who and row.who.name, row.offset) for row in rows] == [
            (0, 0.0, "n0", 0), (1, 0.5, "n1", 1), (2, 1.0, "n2", 2), (None, None, None, 3),
        ]  # fmt: skip

    def test_are_the_fields_that_are_named_and_the_bytes(self, spark, kafka, apicurio, orders):
        rows = load(spark, avro(kafka, apicurio, orders, columns="value.who.name,offset,value.id,rawValue"))
        assert rows.columns == ["value", "offset", "rawValue"]
        assert rows.schema["value"].dataType.simpleString() == "struct<id:bigint,who:struct<name:string>>"
        assert rows.first().rawValue[:1] == b"\0"

    def test_are_decoded_by_a_guid_in_a_header(self, spark, kafka, srfake):
        topic = topic_with(kafka, [], partitions=1)
        send(kafka, srfake, topic, ORDER, [order(7)], in_headers=True)
        rows = load(spark, avro(kafka, srfake, topic, valueFraming="confluent-header")).collect()
        assert [row.value.id for row in rows] == [7]

    def test_are_text_and_json_by_ddl(self, spark, kafka):
        topic = topic_with(kafka, [Record(0, b"k", b'{"id": 1, "at": "2026-01-02T03:04:05"}')], partitions=1)
        given = options(
            kafka, topic, keyFormat="string", valueFormat="json", valueSchema="id INT, at TIMESTAMP", timeZone="+01:00"
        )
        row = load(spark, given).selectExpr("key", "value.id", "cast(value.at as string) as at").first()
        assert tuple(row) == ("k", 1, "2026-01-02 02:04:05")

    def test_are_those_of_group_batch_read_where_and_a_view(self, spark, kafka, group, apicurio, orders):
        given = avro(kafka, apicurio, orders, group)
        with group_batch(spark, given | {"startingOffsets": "group", "kafka.auto.offset.reset": "earliest"}) as batch:
            assert [row.value.id for row in batch.df.collect()] == [0, 1, 2]
        with group_batch(spark, given | {"startingOffsets": "group"}) as batch:
            assert batch.df.selectExpr("value.id").collect() == []
        assert [row.value.id for row in read_where(spark, given, "offset = 1").collect()] == [1]
        assert read_where(spark, given, "offset = 99").selectExpr("value.who.name").collect() == []
        fields = given | {"columns": "value.id,offset,rawValue"}
        assert [row.offset for row in read_where(spark, fields, "offset >= 1 and value.id < 2").collect()] == [1]
        view = name("view").replace("-", "_")
        listed = ", ".join(f"`{key}` '{value}'" for key, value in given.items())
        spark.sql(f"CREATE TEMPORARY VIEW {view} USING groupkafka OPTIONS ({listed})")
        assert [row.id for row in spark.sql(f"SELECT value.id FROM {view} ORDER BY 1").collect()] == [0, 1, 2]


def test_a_look_shows_what_values_hold(kafka, apicurio, orders):
    produce(kafka, orders, [Record(0, b"k", b"broken")])
    *_, fits, broken = explore.look(avro(kafka, apicurio, orders), orders)
    assert (fits.value.kind, broken.value.text) == ("json", "broken")
    assert json.loads(fits.value.text) == order(2)


def test_what_differs_in_a_writer_s_schema_is_warned_of_once_in_a_process_which_runs_many_tasks(kafka, srfake, caplog):
    topic = topic_with(kafka, [], partitions=1)
    more = {"name": "more", "type": "int"}
    at, read = (
        {"name": "at", "type": {"type": "long", "logicalType": unit}} for unit in ("time-micros", "timestamp-micros")
    )
    row = order(1, more=2, at=datetime.time(0, 0, 1))
    (written,) = confluent(srfake, topic, with_fields(*ORDER["fields"][1:], at, more), [row])
    given = options(kafka, topic, valueFormat="avro", valueSchema=json.dumps(with_fields(*ORDER["fields"][1:], read)))
    parsed = Options.parse(given | {"schema.registry.url": srfake.url})
    parsed = replace(parsed, typed=resolved(parsed))
    batch = pa.RecordBatch.from_pydict({"value": pa.array([written.value], pa.binary())})
    for _ in range(3):
        (found,) = TypedBatches(parsed).as_objects(batch)["value"]
        assert found.pop("at") == datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC)
        assert found == order(1)
    said = "left out: more. A query|so these fields are wrong, as from_avro reads them: at .time-micros as timestamp"
    assert [re.findall(said, record.getMessage()) != [] for record in caplog.records] == [True, True]


LARGE = {"s": "x" * (1 << 20), "n": list(range(-100_000, 100_000))}
WIDE = {f"f{number}": number for number in range(10_000)}
FIELDS = [{"name": "s", "type": "string"}, {"name": "n", "type": {"type": "array", "items": "long"}}]
SCHEMAS = {
    "json": ("s STRING, n ARRAY<BIGINT>", ", ".join(f"{name} BIGINT" for name in WIDE)),
    "avro": tuple(
        {"type": "record", "name": "Large", "fields": fields}
        for fields in (FIELDS, [{"name": name, "type": ["null", "long"], "default": None} for name in WIDE])
    ),
}


@pytest.mark.soak
@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_value_of_megabytes_and_a_value_of_ten_thousand_fields_are_read(spark, kafka, srfake, kind):
    large, wide = (name("large") for _ in range(2))
    given = []
    for topic, schema, row in zip((large, wide), SCHEMAS[kind], (LARGE, WIDE), strict=True):
        kafka.create_topic(topic, configs={"max.message.bytes": str(4 << 20)})
        if kind == "avro":
            (value,) = [each.value for each in confluent(srfake, topic, schema, [row])]
            given.append(avro(kafka, srfake, topic))
        else:
            value = json.dumps(row).encode()
            given.append(options(kafka, topic, valueFormat="json", valueSchema=schema))
        produce(kafka, topic, [Record(0, None, value)], max_request_size=4 << 20)
    row = load(spark, given[0]).selectExpr("length(value.s) AS s", "value.n").first()
    assert (row.s, row.n) == (1 << 20, LARGE["n"])
    assert load(spark, given[1]).select("value.f7", "value.f9999").first() == (7, 9999)
    assert load(spark, given[1] | {"columns": "value"}).first().value.asDict() == WIDE


class TestAMalformedValue:
    @pytest.fixture
    def broken(self, kafka, orders):
        produce(kafka, orders, [Record(0, b"k", b"broken", headers=[("own", b"h")])])
        return orders

    def test_fails_the_read_and_is_named(self, spark, kafka, apicurio, broken):
        with pytest.raises(PySparkException, match=f"{broken}-0: offset 3: the value is malformed: .*onMalformedValue"):
            load(spark, avro(kafka, apicurio, broken)).collect()

    def test_is_null_and_its_bytes_are_there(self, spark, kafka, apicurio, broken):
        given = avro(kafka, apicurio, broken, onMalformedValue="null", columns="value,rawValue")
        assert [row.rawValue for row in load(spark, given).where("value IS NULL").collect()] == [b"broken"]

    def test_is_counted_in_the_progress_and_for_prometheus(self, spark, kafka, group, apicurio, broken, tmp_path):
        given = avro(kafka, apicurio, broken, group, onMalformedValue="null", columns="value,rawValue")
        (code,) = re.findall(r"```python\n(from .*?observe.*?)```", PAGE, re.DOTALL)
        running = {"df": spark.readStream.format("groupkafka").options(**given).load()}
        exec(code, running)
        writer = running["counted"].writeStream.format("noop").queryName("orders")
        with GroupKafkaListener(spark, prometheus_port=0) as listener:
            query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
            query.processAllAvailable()
            produce(kafka, broken, [Record(0, b"k", value) for value in (b"broken, too", b"and this", None)])
            query.processAllAvailable()
            progress = [each.observedMetrics["values"] for each in query.recentProgress if each.numInputRows]
            counts = [each.malformed for each in progress]
            assert (counts[0], sum(counts)) == (1, 3)

            def shown():
                with urllib.request.urlopen(f"http://127.0.0.1:{listener.prometheus_port}/metrics") as answer:
                    text = answer.read().decode()
                labels = rf'{{group="{group}",metric="malformed",observation="values",query="orders"}}'
                return [float(n) for n in re.findall(rf"^groupkafka_observed_(?:last|total){labels} (.+)$", text, re.M)]

            wait_until(lambda: shown() == [counts[-1], 3], within=30)
            query.stop()

    def test_is_a_dead_letter_as_it_was_and_in_no_row(self, spark, kafka, apicurio, broken):
        kafka.create_topic(f"{broken}-dlt", partitions=1)
        given = avro(kafka, apicurio, broken, onMalformedValue="deadLetter", columns="value")
        assert [row.value.id for row in load(spark, given).collect()] == [0, 1, 2]
        letters = load(spark, options(kafka, f"{broken}-dlt", includeHeaders=True)).collect()
        assert [(bytes(row.key), bytes(row.value)) for row in letters] == [(b"k", b"broken")]
        headers = {header.key: bytes(header.value or b"") for header in letters[0].headers}
        assert headers["own"] == b"h"
        assert (headers["__connect.errors.topic"], headers["__connect.errors.offset"]) == (broken.encode(), b"3")
        assert b"zero byte" in headers["__connect.errors.exception.message"]

    def test_of_many_records_is_a_letter_each_in_little_memory(self, kafka):
        topic, count = topic_with(kafka, [], partitions=1), 6000
        kafka.create_topic(f"{topic}-dlt", partitions=1)
        given = options(kafka, topic, valueFormat="json", valueSchema="a INT", onMalformedValue="deadLetter")
        parsed = Options.parse(given)
        batches = TypedBatches(replace(parsed, typed=resolved(parsed)))
        rows = {column: pa.nulls(count, COLUMNS[column][1]) for column in EVERY}
        rows |= {"value": pa.array([b"no"] * count, pa.binary()), "topic": pa.array([topic] * count)}
        rows |= {"partition": pa.array([0] * count, pa.int32()), "offset": pa.array(range(count))}
        rows |= {"timestampType": pa.array([0] * count, pa.int32())}
        tracemalloc.start()
        assert list(batches.decoded([pa.RecordBatch.from_pydict(rows)])) == []
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 12 << 20
        assert end_offset(kafka, f"{topic}-dlt") == count

    def test_of_a_retry_topic_is_a_dead_letter_of_the_main_topic(self, spark, kafka, group, apicurio, broken, tmp_path):
        retry, dead, rows = f"{broken}-retry-1", f"{broken}-dlt", []
        for each in (retry, dead):
            kafka.create_topic(each, partitions=1)
        (written,) = confluent(apicurio, broken, ORDER, [order(7)])
        produce(kafka, retry, [Record(0, None, written.value), Record(0, b"r", b"broken, too")])
        given = avro(kafka, apicurio, broken, group, retryTopics=1, onMalformedValue="deadLetter")
        df = spark.readStream.format("groupkafka").options(**given).load()
        writer = df.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        assert sorted((row.topic, row.value.id) for row in rows) == [(broken, 0), (broken, 1), (broken, 2), (retry, 7)]
        letters = load(spark, options(kafka, dead, includeHeaders=True)).collect()
        headers = [{header.key: header.value for header in letter.headers} for letter in letters]
        assert {(bytes(letter.key), bytes(found["__connect.errors.topic"]).decode())
                for letter, found in zip(letters, headers, strict=True)} == {(b"k", broken), (b"r", retry)}  # fmt: skip

    def test_needs_a_dead_letter_topic_before_data_moves(self, spark, kafka, apicurio, broken):
        with pytest.raises(PySparkException, match=f"does not have {broken}-dlt: create it, or take null or fail"):
            load(spark, avro(kafka, apicurio, broken, onMalformedValue="deadLetter")).collect()


REFUSED = {
    "a registry that does not listen": (
        {"schema.registry.url": "http://127.0.0.1:1", "schema.registry.max.retries": 0}, "check schema.registry.url"
    ),
    "a subject that is not there": ({"valueSubject": "no"}, "give valueSubject, or register a schema for it"),
    "a schema that is no Avro": ({"valueSchema": '{"type": "nothing"}'}, "valueSchema: .*nothing"),
    "a field that is not there": ({"columns": "value.no"}, "has no field no: it has id, amount, who"),
    "a field of bytes": (
        {"columns": "value.no", "valueFormat": "binary", "schema.registry.url": None}, "set valueFormat to json, avro"
    ),
    "a format without a schema": ({"schema.registry.url": None}, "needs schema.registry.url, or valueSchema"),
    "json without a schema": ({"valueFormat": "json"}, "needs valueSchema, such as"),
    "a pattern of topics": ({"subscribe": None, "subscribePattern": "a.*"}, "needs valueSubject or valueSchema"),
    "a text that is no DDL": (
        {"valueFormat": "json", "valueSchema": "id INT,", "schema.registry.url": None},
        "^valueSchema: the schema id INT, cannot be read"
    ),
    "a type that JSON does not have": (
        {"valueFormat": "json", "valueSchema": "id INTERVAL DAY", "schema.registry.url": None},
        "^valueSchema: the field id cannot be read from JSON as interval day"
    ),
    "a file that is not there": ({"valueSchema": "file:/nowhere"}, "valueSchema .*cannot be read: No such file"),
}  # fmt: skip


@pytest.mark.parametrize(("given", "message"), REFUSED.values(), ids=REFUSED)
def test_before_data_moves_a_sentence_says_what_to_change_about(kafka, apicurio, orders, given, message):
    every = avro(kafka, apicurio, orders) | {key: str(value) for key, value in given.items() if value is not None}
    for key in [key for key, value in given.items() if value is None]:
        del every[key]
    with pytest.raises(GroupKafkaError, match=message):
        GroupKafkaDataSource(every).schema()


def test_topics_with_different_schemas_are_not_read_together(kafka, apicurio, orders):
    other = topic_with(kafka, [], partitions=1)
    apicurio.register(f"{other}-value", with_fields({"name": "more", "type": "int"}))
    with pytest.raises(OptionError, match="have different schemas, and the column value has one type"):
        GroupKafkaDataSource(avro(kafka, apicurio, f"{orders},{other}")).schema()


def test_of_several_topics_the_one_without_a_subject_is_named(kafka, apicurio, orders):
    other = topic_with(kafka, [], partitions=1)
    with pytest.raises(OptionError, match=f"subjects/{other}-value/.*: give valueSubject, or register a schema for it"):
        GroupKafkaDataSource(avro(kafka, apicurio, f"{orders},{other}")).schema()


def test_a_registry_that_wants_a_login_says_so(kafka, srfake):
    with front(srfake.url, wants="Basic bWU6eA==") as guarded:
        with pytest.raises(RegistryError, match="HTTP 401: .*: give schema.registry.basic.auth.user.info"):
            GroupKafkaDataSource(avro(kafka, guarded, "orders")).schema()
        assert len(guarded.asked) == 1


def test_a_login_is_in_no_plan_with_the_setting_of_submit_session(spark, kafka, srfake, orders, capsys):
    srfake.register(f"{orders}-value", ORDER)
    given = {"schema.registry.basic.auth.user.info": "me:hush-7f3a"}
    with front(srfake.url, wants="Basic bWU6aHVzaC03ZjNh") as guarded:
        spark.conf.set(REDACTION, SECRET)
        spark.readStream.format("groupkafka").options(**avro(kafka, guarded, orders, **given)).load().explain(True)
        spark.conf.unset(REDACTION)
    plan = capsys.readouterr().out
    assert "schema.registry.basic.auth.user.info=*" in plan
    assert "hush" not in plan


def test_a_subject_of_another_type_is_named(kafka, srfake):
    topic = topic_with(kafka, [], partitions=1)
    srfake.register(f"{topic}-value", {"type": "object"}, "JSON")
    with pytest.raises(RegistryError, match="needs a schema of type AVRO.*: give valueSubject, or valueFormat=json wi"):
        GroupKafkaDataSource(avro(kafka, srfake, topic)).schema()


class TestASchemaThatChanges:
    """While a query runs, whose column has the type of ORDER, and over its restart."""

    ADDED = with_fields(*ORDER["fields"][1:], {"name": "more", "type": "string", "default": "none"})
    REMOVED = with_fields(ORDER["fields"][2])
    REMOVED_WITHOUT_DEFAULT = with_fields(ORDER["fields"][1])
    RENAMED = with_fields({"name": "sum", "type": ["null", "double"], "default": None}, ORDER["fields"][2])
    OPTIONAL = ORDER | {"fields": [{"name": "id", "type": ["null", "long"]}, *ORDER["fields"][1:]]}
    NARROW = ORDER | {"fields": [{"name": "id", "type": "int"}, *ORDER["fields"][1:]]}
    OTHER = ORDER | {"fields": [{"name": "id", "type": "string"}, *ORDER["fields"][1:]]}

    @pytest.fixture
    def query(self, spark, kafka, group, apicurio, orders, tmp_path):
        """Starts the query; gives it, and the rows of all starts."""
        rows = []

        def run(**more):
            given = avro(kafka, apicurio, orders, group, **more)
            df = spark.readStream.format("groupkafka").options(**given).load()
            wanted = df.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.select("value.*").collect()))
            return wanted.option("checkpointLocation", str(tmp_path / "checkpoint")).start(), rows

        return run

    def test_is_read_on_by_its_own_schema_while_the_query_runs(self, kafka, apicurio, orders, query):
        running, rows = query(onMalformedValue="null")
        try:
            for schema, *written in (
                (self.ADDED, order(10, more="x")),
                (self.REMOVED, {"id": 11, "who": {"name": "n"}}),
                (self.REMOVED_WITHOUT_DEFAULT, {"id": 12, "amount": 6.0}),
                (self.RENAMED, {"id": 13, "sum": 1.0, "who": {"name": "n"}}),
                (self.OPTIONAL, order(14), order(15, id=None), order(16, amount=None)),
                (self.NARROW, order(17)),
                (self.OTHER, order("18")),
            ):
                send(kafka, apicurio, orders, schema, written)
            running.processAllAvailable()
        finally:
            running.stop()
        assert [(row.id, row.amount) for row in rows] == [
            (0, 0.0), (1, 0.5), (2, 1.0), (10, 5.0), (11, None), (None, None), (13, None), (14, 7.0), (None, None),
            (16, None), (17, 8.5), (None, None),
        ]  # fmt: skip
        assert set(rows[3].asDict()) == {"id", "amount", "who"}  # a field that was added is left out

    def test_is_the_type_of_the_column_once_the_query_is_started_again(self, kafka, apicurio, orders, query):
        """Each start reads values of the schema before, too."""
        changed = {
            "id": {"type": ["null", "long"]},
            "sum": {"type": ["null", "double"], "aliases": ["amount"], "default": None},
            "more": {"type": "string", "default": "none"},
            "note": {"type": ["null", "string"], "default": None},
        }
        narrow, other = ({**changed, "id": {"type": ["null", kind]}} for kind in ("int", "string"))
        written, last = [], ORDER
        for fields, older, newer in (
            ({}, [], []),
            (changed, [order(3)], [{"id": 10, "sum": 5.0, "more": "x", "note": "y"}, {"id": None, "more": "z"}]),
            (narrow, [{"id": 11, "more": "x"}], [{"id": 12, "more": "x"}]),
            (other, [{"id": 13, "more": "x"}], [{"id": "14", "more": "x"}]),
        ):
            if fields:
                send(kafka, apicurio, orders, last, older)
                last = ORDER | {"fields": [{"name": name, **field} for name, field in fields.items()]}
                send(kafka, apicurio, orders, last, newer)
            running, rows = query(onMalformedValue="null")
            running.processAllAvailable()
            running.stop()
            written.append([tuple(row) for row in rows])
            rows.clear()
        assert [row[:2] for row in written[0]] == [(0, 0.0), (1, 0.5), (2, 1.0)]
        assert written[1] == [(3, 1.5, "none", None), (10, 5.0, "x", "y"), (None, None, "z", None)]
        assert written[2] == [(None,) * 4, (12, None, "x", None)]
        assert written[3] == [(None,) * 4, ("14", None, "x", None)]

    @pytest.mark.soak
    def test_ends_a_query_that_is_started_again_if_a_stateful_operator_keeps_the_column(
        self, spark, kafka, group, tmp_path
    ):
        topic = topic_with(kafka, [Record(0, None, b'{"id": 1}')], partitions=1)

        def run(schema):
            given = options(kafka, topic, group, valueFormat="json", valueSchema=schema)
            df = spark.readStream.format("groupkafka").options(**given).load()
            kept = df.dropDuplicates(["value"]).writeStream.format("noop").trigger(availableNow=True)
            kept.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

        run("id BIGINT")
        produce(kafka, topic, [Record(0, None, b'{"id": 2, "more": "x"}')])
        with pytest.raises(PySparkException, match="STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE"):
            run("id BIGINT, more STRING")


def test_schemas_that_refer_to_others_are_put_together(spark, kafka, registry):
    topic = topic_with(kafka, [], partitions=1)
    currency, money = name("currency"), name("money")
    registry.register(currency, {"type": "enum", "name": "Currency", "namespace": "shop", "symbols": ["EUR", "USD"]})
    amount = {"name": "amount", "type": "long"}
    kept_in = {"name": "currency", "type": "shop.Currency", "default": "EUR"}
    of_currency = {"name": "shop.Currency", "subject": currency, "version": 1}
    registry.register(money, {"type": "record", "name": "Money", "namespace": "shop", "fields": [amount]})
    registry.register(
        money,
        {"type": "record", "name": "Money", "namespace": "shop", "fields": [amount, kept_in]},
        references=[of_currency],
    )
    lines = {"name": "lines", "type": {"type": "array", "items": "shop.Money"}, "default": []}
    first = with_fields({"name": "price", "type": "shop.Money"})
    second = with_fields({"name": "price", "type": ["null", "shop.Money"]}, lines)
    send(kafka, registry, topic, first, [{"id": 1, "price": {"amount": 5}}], references=[("shop.Money", money, 1)])
    paid = {"amount": 7, "currency": "USD"}
    send(
        kafka, registry, topic, second, [{"id": 2, "price": None, "lines": [paid]}],
        references=[("shop.Money", money, 2), ("shop.Currency", currency, 1)],
    )  # fmt: skip
    rows = load(spark, avro(kafka, registry, topic, columns="value")).collect()
    assert [row.value.asDict(recursive=True) for row in rows] == [
        {"id": 1, "price": {"amount": 5, "currency": "EUR"}, "lines": []},
        {"id": 2, "price": None, "lines": [paid]},
    ]


@pytest.fixture
def killed_registry(srfake):
    """A registry that may be killed: it forgets its schemas."""
    with registries.Srfake() as registry:
        yield registry


def test_a_running_query_waits_for_a_registry_that_is_away(spark, kafka, group, tmp_path, killed_registry):
    registry, topic, rows = killed_registry, topic_with(kafka, [], partitions=1), []
    send(kafka, registry, topic, ORDER, [order(1)])
    df = spark.readStream.format("groupkafka").options(**avro(kafka, registry, topic, group)).load()
    registry.kill()
    query = df.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
    running = query.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        wait_until(lambda: running.status["isDataAvailable"] or running.exception(), within=60)
        assert not rows
        registry.start()
        registry.register(f"{topic}-value", ORDER)
        send(kafka, registry, topic, ORDER, [order(2)])
        wait_until(lambda: len(rows) == 2 or running.exception(), within=90)
        assert running.exception() is None
    finally:
        running.stop()
    assert [row.value.id for row in rows] == [1, 2]
