"""What a look gives goes on in Spark: tables as DataFrames, and the schema of a topic's JSON for from_json."""

import re
from pathlib import Path

import pytest
from pyspark.sql.functions import col, from_json
from support import Record, commit_for, numbered, options, topic_with

from spark_kafka_group import explore
from spark_kafka_group.errors import OptionError
from spark_kafka_group.values.commit_metadata import commit_metadata

ROOT = Path(__file__).parents[2]
JSON = [b'{"id": 1, "who": {"name": "a"}}', b'{"id": 2, "tags": ["x"]}', b"no JSON", b"[1]", b'"text"', b"\xff", None]


@pytest.fixture
def topic(kafka):
    return topic_with(kafka, [Record(0, b"k", value, (("h", b"x"),)) for value in JSON])


def test_the_schema_of_json_values_is_ready_for_from_json(kafka, spark, topic):
    schema = explore.schema(spark, options(kafka, topic), topic)
    assert schema.simpleString() == "struct<id:bigint,tags:array<string>,who:struct<name:string>>"
    read = spark.read.format("groupkafka").options(**options(kafka, topic)).load()
    parsed = read.select("offset", from_json(col("value").cast("string"), schema).alias("v"))
    assert [row["v"] and row["v"]["id"] for row in parsed.orderBy("offset").collect()] == [
        1,
        2,
        None,
        None,
        None,
        None,
        None,
    ]


def test_one_record_that_spark_cannot_take_spoils_no_schema(kafka, spark):
    deep = b'{"a":' * 400 + b"1" + b"}" * 400
    digits = b'{"b": ' + b"9" * 2_000 + b"}"
    name = b'{"' + b"c" * 60_000 + b'": 1}'
    refused = [deep, digits, name]
    topic = topic_with(kafka, [Record(0, None, value) for value in (*refused, b'{"id": 1}')])
    assert explore.schema(spark, options(kafka, topic), topic).simpleString() == "struct<id:bigint>"
    topic = topic_with(kafka, [Record(0, None, b'{"_corrupt_record": 1, "id": 1}')])
    schema = explore.schema(spark, options(kafka, topic), topic)
    assert schema.simpleString() == "struct<id:bigint>"
    strings = spark.createDataFrame([('{"_corrupt_record": 1, "id": 1}',)], "value string")
    assert strings.select(from_json("value", schema)["id"]).first()[0] == 1
    topic = topic_with(kafka, [Record(0, None, b'{"_corrupt_record": "a"}')])
    assert explore.schema(spark, options(kafka, topic), topic).simpleString() == "struct<_corrupt_record:string>"
    topic = topic_with(kafka, [Record(0, None, value) for value in (*refused, b"{}")])
    with pytest.raises(OptionError, match="none of its 4 newest values is a JSON object with a field"):
        explore.schema(spark, options(kafka, topic), topic)


def test_of_keys_that_differ_in_case_only_the_schema_has_those_that_spark_can_select(kafka, spark):
    values = [b'{"id": 1, "ID": 2, "rows": [{"x": 1}, {"X": "a"}, {"x": 3}]}', b'{"Id": 5}', b'{"Id": 6}', b'{"id": 7}']
    given = [*values, b'{"id": 8}']
    topic = topic_with(kafka, [Record(0, None, value) for value in given])
    schema = explore.schema(spark, options(kafka, topic), topic)
    assert schema.simpleString() == "struct<id:bigint,rows:array<struct<x:bigint>>>"
    read = spark.read.format("groupkafka").options(**options(kafka, topic)).load()
    parsed = read.select("offset", from_json(col("value").cast("string"), schema).alias("v"))
    rows = parsed.orderBy("offset").select("v.id", "v.rows.x").collect()
    assert [row["id"] for row in rows] == [1, None, None, 7, 8]
    assert rows[0]["x"] == [1, None, 3]
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        names = explore.schema(spark, options(kafka, topic), topic).names
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert names == ["ID", "Id", "id", "rows"]


def test_a_topic_without_json_has_no_schema(kafka, spark):
    topic = topic_with(kafka, numbered(3, 3))
    with pytest.raises(OptionError, match="none of its 3 newest values is a JSON object"):
        explore.schema(spark, options(kafka, topic), topic)


def test_tables_become_dataframes(kafka, spark, topic, group):
    commit_for(kafka, group, {(topic, 0): 3}, commit_metadata("reader-1", 4, 7))
    given = options(kafka, topic)
    of_topic = explore.topics(given).to_df(spark).first()
    assert (of_topic["topic"], of_topic["records"], of_topic["headers"]) == (topic, 7, ["h"])
    messages = explore.look(given, topic).to_df(spark)
    assert messages.where("is_tombstone").select("offset", "value").collect() == [(6, None)]
    assert messages.first()["headers"] == [("h", "x")]
    behind = explore.lag(given, group).to_df(spark).first()
    assert (behind["lag"], behind["reader"], behind["batch"]) == (4, "reader-1", 7)
    assert explore.groups(given).to_df(spark).where(col("group") == group).first()["state"] == "Empty"
    assert explore.rate(given, topic, points=4).to_df(spark).count() == 4


def test_the_examples_of_the_page_run(kafka, spark, topic, group, capsys):
    commit_for(kafka, group, {(topic, 0): 3})
    page = (ROOT / "docs/batch-and-exploring.md").read_text().partition("## Look into topics and groups")[2]
    (code,) = re.findall(r"^```python\n(.*?)^```", page.partition("\n## ")[0], re.DOTALL | re.MULTILINE)
    for written, here in (
        ("localhost:9092", kafka.bootstrap_servers),
        ('"orders"', f'"{topic}"'),
        ('"billing"', f'"{group}"'),
    ):
        assert written in code
        code = code.replace(written, here)
    exec(compile(code, "batch-and-exploring.md", "exec"), {"spark": spark})
    assert "7 messages" in capsys.readouterr().out
