"""Spark writes to real brokers; the essential cases of Spark's own KafkaSinkSuite among others."""

import re
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from support import name

from spark_kafka_group.testing import wait_until

PAGE = (Path(__file__).parents[2] / "docs/writing.md").read_text()
NUMBER = "cast(cast(value as string) as int)"


def sink(kafka, topic=None, **more):
    return {"kafka.bootstrap.servers": kafka.bootstrap_servers} | ({"topic": topic} if topic else {}) | more


def write(df, kafka, topic=None, **more):
    df.write.format("groupkafka").options(**sink(kafka, topic, **more)).mode("append").save()


@pytest.fixture
def read(spark, kafka):
    """Rows of a topic by Spark's reader: of columns, in no order."""

    def rows(topic, *columns):
        df = spark.read.format("groupkafka").options(**{
            "kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic, "includeHeaders": "true",
        }).load()  # fmt: skip
        return [tuple(row) for row in df.selectExpr(*columns).collect()]

    return rows


@pytest.fixture
def numbers(spark):
    """Streams of numbers as text; a further file is a further micro-batch."""

    def stream(folder):
        return spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).text(str(folder))

    return stream


def test_a_batch_write_has_keys_headers_and_values_as_they_are(spark, kafka, read):
    topic = kafka.create_topic(name("topic"), partitions=3)
    df = spark.sql(
        "SELECT * FROM VALUES ('a', '1', array(named_struct('key', 'x', 'value', X'00'), named_struct('key', 'x', "
        "'value', CAST(NULL AS BINARY)))), (NULL, '2', NULL), ('', NULL, array()) AS t(key, value, headers)"
    )
    write(df, kafka, topic)
    rows = read(topic, "cast(key as string)", "cast(value as string)", "headers")
    assert sorted(rows, key=str) == [
        ("", None, None), ("a", "1", [("x", bytearray(b"\0")), ("x", None)]), (None, "2", None),
    ]  # fmt: skip


def test_rows_go_to_the_topics_of_their_column_and_the_option_comes_before_it(spark, kafka, read):
    here, there = (kafka.create_topic(name("topic"), partitions=1) for _ in range(2))
    df = spark.sql(f"SELECT if(id % 2 = 0, '{here}', '{there}') topic, cast(id AS string) value FROM range(10)")
    write(df, kafka)
    assert sorted(read(here, NUMBER)) == [(n,) for n in range(0, 10, 2)]
    assert sorted(read(there, NUMBER)) == [(n,) for n in range(1, 10, 2)]
    write(df.selectExpr("'foo' topic", "value"), kafka, there)
    assert len(read(there, "value")) == 15


def test_a_key_has_one_partition_and_the_column_partition_comes_before_it(spark, kafka, read):
    keyed, placed = (kafka.create_topic(name("topic"), partitions=4) for _ in range(2))
    df = spark.sql("SELECT cast(id % 20 AS string) key, cast(id AS string) value FROM range(200)")
    write(df, kafka, keyed)
    of_keys = dict(read(keyed, "cast(key as string)", "partition"))
    assert Counter(read(keyed, "cast(key as string)", "partition")) == Counter(dict.fromkeys(of_keys.items(), 10))
    assert len(set(of_keys.values())) == 4
    write(df.selectExpr("*", "2 partition"), kafka, placed)
    assert {row[0] for row in read(placed, "partition")} == {2}
    nulls = kafka.create_topic(name("topic"), partitions=4)
    write(df.selectExpr("*", "cast(NULL AS int) partition"), kafka, nulls)
    assert dict(read(nulls, "cast(key as string)", "partition")) == of_keys


def test_a_record_of_one_megabyte_fits_and_a_larger_one_is_refused_with_what_to_change(spark, kafka, read):
    topic = kafka.create_topic(name("topic"), partitions=1)
    write(spark.sql("SELECT repeat('x', 1000000) value"), kafka, topic, **{"kafka.buffer.memory": "20000"})
    assert read(topic, "length(value)") == [(1_000_000,)]
    with pytest.raises(PythonException, match=f"{topic}-0: a row makes a record of .*kafka.max.request.size"):
        write(spark.sql("SELECT repeat('x', 1100000) value"), kafka, topic)


@pytest.mark.parametrize(
    ("select", "text"),
    [
        ("SELECT '1' key", "there is no column value, which every record needs"),
        ("SELECT 1 value", "column value has the type int and must be string or binary: cast it, as in"),
        ("SELECT '1' value, '1' partition", "column partition has the type string and must be int"),
        ("SELECT '1' value, interval 1 month other", "column other is no part of a record: leave it out"),
    ],
)
def test_a_schema_is_refused_before_rows_move(spark, kafka, select, text):
    with pytest.raises(AnalysisException, match=text):
        write(spark.sql(select), kafka, "any")


def test_a_row_without_a_topic_is_an_error(spark, kafka):
    with pytest.raises(AnalysisException, match="no topic is named: set option topic, or give the rows a column topic"):
        write(spark.sql("SELECT '1' value"), kafka)
    with pytest.raises(PythonException, match="a row has no topic, as its column topic is null"):
        write(spark.sql("SELECT '1' value, cast(NULL AS string) topic"), kafka)


def test_a_topic_that_does_not_exist_and_options_that_are_wrong_are_errors_before_rows_move(spark, kafka):
    df, absent = spark.sql("SELECT '1' value"), name("absent")
    with pytest.raises(AnalysisException, match=f"topic {absent} does not exist: create it, or correct its name"):
        write(df, kafka, absent)
    with pytest.raises(AnalysisException, match=r"option kafka\.key\.serializer is not supported: key and value are"):
        write(df, kafka, "t", **{"kafka.key.serializer": "x"})
    with pytest.raises(AnalysisException, match="option subscribe is not supported: it is for reading, and this query"):
        write(df, kafka, "t", subscribe="t")


def test_records_are_appended_and_nothing_else(spark, kafka):
    writer = spark.sql("SELECT '1' value").write.format("groupkafka").options(**sink(kafka, "any"))
    with pytest.raises(AnalysisException, match="records of a topic cannot be overwritten: write with mode append"):
        writer.mode("overwrite").save()
    for mode in ("errorifexists", "ignore"):
        with pytest.raises(AnalysisException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
            writer.mode(mode).save()


def test_sql_inserts_into_a_view_with_options_and_into_a_table_with_options_at_each_insert(spark, kafka, read):
    topic = kafka.create_topic(name("topic"), partitions=1)
    view, table = name("view").replace("-", "_"), name("table").replace("-", "_")
    options = ", ".join(f"`{key}` = '{value}'" for key, value in sink(kafka, topic).items())
    spark.sql(f"CREATE TEMPORARY VIEW {view} (value string) USING groupkafka OPTIONS ({options})")
    spark.sql(f"INSERT INTO {view} SELECT 'view'")
    spark.sql(f"CREATE TABLE {table} (value string) USING groupkafka")
    try:
        spark.sql(f"INSERT INTO {table} WITH ({options}) SELECT 'sql'")
        spark.sql("SELECT 'table' value").writeTo(table).options(**sink(kafka, topic)).append()
        with pytest.raises(AnalysisException, match="the write has no options. Spark keeps none of a table whose"):
            spark.sql(f"INSERT INTO {table} SELECT 'x'")
    finally:
        spark.sql(f"DROP TABLE {table}")
        spark.catalog.dropTempView(view)
    assert sorted(read(topic, "cast(value as string)")) == [("sql",), ("table",), ("view",)]


def test_a_write_makes_a_table_and_appends_to_it_and_each_has_the_options(spark, kafka, read):
    topic, table = kafka.create_topic(name("topic"), partitions=1), name("table").replace("-", "_")
    made = f"{table}_made"

    def row(value):
        return spark.sql(f"SELECT '{value}' value")

    try:
        for value, mode in [("new", "append"), ("append", "append"), ("ignored", "ignore")]:
            row(value).write.format("groupkafka").options(**sink(kafka, topic)).mode(mode).saveAsTable(table)
        row("created").writeTo(made).using("groupkafka").options(**sink(kafka, topic)).create()
        with pytest.raises(AnalysisException, match="the write has no options"):
            row("x").write.options(**sink(kafka, topic)).insertInto(table)
        overwriting = row("x").write.format("groupkafka").options(**sink(kafka, topic)).mode("overwrite")
        with pytest.raises(AnalysisException, match="records of a topic cannot be overwritten"):
            overwriting.saveAsTable(table)
        with pytest.raises(AnalysisException, match="records of a topic cannot be overwritten"):
            row("x").writeTo(made).using("groupkafka").options(**sink(kafka, topic)).createOrReplace()
        spark.sql(f"DROP TABLE IF EXISTS {made}")
        given = ", ".join(f"`{key}` = '{value}'" for key, value in sink(kafka, topic).items())
        for options in ("", f"OPTIONS ({given})"):
            with pytest.raises(AnalysisException, match="the write has no options"):
                spark.sql(f"CREATE TABLE {made} USING groupkafka {options} AS SELECT 'x' value")
    finally:
        for one in (table, made):
            spark.sql(f"DROP TABLE IF EXISTS {one}")
    assert sorted(read(topic, "cast(value as string)")) == [("append",), ("created",), ("new",)]


def test_a_stream_writes_each_micro_batch_and_reports_its_rows(kafka, read, numbers, tmp_path):
    topic, folder = kafka.create_topic(name("topic"), partitions=2), tmp_path / "in"
    folder.mkdir()
    for batch in range(3):
        (folder / f"{batch}.txt").write_text("".join(f"{n}\n" for n in range(batch * 10, batch * 10 + 10)))
    query = (
        numbers(folder).writeStream.format("groupkafka").options(**sink(kafka, topic)).queryName(name("query"))
        .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(60)
    assert sorted(read(topic, NUMBER)) == [(n,) for n in range(30)]
    assert [progress["sink"]["numOutputRows"] for progress in query.recentProgress] == [10, 10, 10]


def test_a_stream_writes_to_a_table_with_options(spark, kafka, read, numbers, tmp_path):
    topic, folder, table = kafka.create_topic(name("topic"), partitions=1), tmp_path / "in", "sink_of_a_stream"
    folder.mkdir()
    (folder / "0.txt").write_text("1\n2\n")
    writer = numbers(folder).writeStream.options(**sink(kafka, topic)).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).format("groupkafka").toTable(table)
    try:
        assert query.awaitTermination(60)
    finally:
        spark.sql(f"DROP TABLE {table}")
    assert sorted(read(topic, NUMBER)) == [(1,), (2,)]


@pytest.mark.soak
def test_a_stream_with_the_whole_result_writes_it_again_with_each_micro_batch_and_updates_are_sparks_to_refuse(
    kafka, read, numbers, tmp_path
):
    topic, folder = kafka.create_topic(name("topic"), partitions=1), tmp_path / "in"
    folder.mkdir()
    for batch in range(2):
        (folder / f"{batch}.txt").write_text("1\n1\n2\n")
    counts = numbers(folder).groupBy("value").count().selectExpr("value key", "cast(count as string) value")
    writer = counts.writeStream.format("groupkafka").options(**sink(kafka, topic)).trigger(availableNow=True)
    query = writer.outputMode("complete").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    assert query.awaitTermination(60)
    written = Counter(read(topic, "cast(cast(key as string) as int)", NUMBER))
    assert written == Counter([(1, 2), (2, 1), (1, 4), (2, 2)])
    query = writer.outputMode("update").option("checkpointLocation", str(tmp_path / "other")).start()
    with pytest.raises(StreamingQueryException, match="groupkafka does not support Update mode"):
        query.awaitTermination(60)


def test_a_stream_from_topic_to_topic_moves_every_record(spark, kafka, read, tmp_path):
    here, there = (kafka.create_topic(name("topic"), partitions=2) for _ in range(2))
    kafka.produce(here, [b"v%d" % n for n in range(100)], partition=1)
    stream = spark.readStream.format("groupkafka").options(**{
        "kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": here, "startingOffsets": "earliest",
    }).load()  # fmt: skip
    query = (
        stream.writeStream.format("groupkafka").options(**sink(kafka, there)).trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    )  # fmt: skip
    assert query.awaitTermination(60)
    rows = read(there, "cast(value as string)", "partition")
    assert sorted(rows) == sorted((f"v{n}", 1) for n in range(100))


def test_what_the_page_shows_is_written(spark, kafka, read, group, tmp_path):
    orders, bills = (kafka.create_topic(name("topic"), partitions=1) for _ in range(2))
    kafka.produce(orders, [b"order"])
    code = "".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    for old, new in {
        "localhost:9092": kafka.bootstrap_servers, '"orders"': f'"{orders}"', '"bills"': f'"{bills}"',
        '"copying"': f'"{group}"', "/tmp": str(tmp_path), ".awaitTermination()": ".processAllAvailable()",
    }.items():  # fmt: skip
        assert old in code
        code = code.replace(old, new)
    names = {"spark": spark}
    exec(code, names)
    names["query"].stop()
    assert sorted(read(bills, "cast(key as string)", "cast(value as string)"), key=str) == [
        ("ann", '{"customer":"ann","amount":12.5}'), ("bob", '{"customer":"bob","amount":3.0}'), (None, "order"),
    ]  # fmt: skip


def test_a_stream_says_in_one_sentence_that_its_topic_does_not_exist(kafka, numbers, tmp_path):
    absent, folder = name("absent"), tmp_path / "in"
    folder.mkdir()
    (folder / "0.txt").write_text("1\n")
    query = (
        numbers(folder).writeStream.format("groupkafka").options(**sink(kafka, absent)).trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    )  # fmt: skip
    with pytest.raises(StreamingQueryException, match=f"topic {absent} does not exist: create it, or correct its name"):
        query.awaitTermination(60)
    wait_until(lambda: not query.isActive, within=20)
