"""The columns do not depend on a session's settings. What is wrong with columns or settings is the last sentence."""

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql.types import TimestampType
from support import Record, commit_for, name, options, topic_with

from spark_kafka_group import explore, group_batch, read_where
from spark_kafka_group.tools.last_line import sentence

SETTINGS = {
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.ansi.enforceReservedKeywords": "true",
    "spark.sql.execution.arrow.useLargeVarTypes": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "Asia/Kolkata",
}
"""Settings that decide what TIMESTAMP is, which names are words of SQL, and which types Arrow's batches have."""
AT_MS = 1_700_000_000_000
OWN = (
    "`key` binary, `value` binary, `topic` string, `partition` int, `offset` bigint, `timestamp` timestamp_ltz, "
    "`timestampType` int"
)


@pytest.fixture
def settings(spark):
    """These settings, as long as a test runs."""
    before = {setting: spark.conf.get(setting) for setting in SETTINGS}
    for setting, value in SETTINGS.items():
        spark.conf.set(setting, value)
    yield
    for setting, value in before.items():
        spark.conf.set(setting, value)


@pytest.mark.usefixtures("settings")
class TestInASessionWithOtherSettings:
    @pytest.fixture
    def read(self, kafka):
        return options(
            kafka, topic_with(kafka, [Record(0, b"k", b"v%d" % n, (("h", b"x"),), AT_MS + n) for n in (0, 1)])
        )

    def test_each_way_of_reading_has_the_same_rows(self, spark, kafka, group, run, read):
        def load(reader, **more):
            return reader.format("groupkafka").options(**read, **more).load()

        def values(df):
            assert df.schema["timestamp"].dataType == TimestampType()
            return sorted(map(tuple, df.selectExpr("cast(`value` as string)", "unix_millis(`timestamp`)").collect()))

        rows = [("v0", AT_MS), ("v1", AT_MS + 1)]
        assert values(load(spark.read)) == values(load(spark.read.schema(OWN))) == rows
        assert values(read_where(spark, read, "`timestamp` > timestamp_millis(1700000000000)")) == rows[1:]
        assert values(read_where(spark, read, "`offset` > 5")) == []
        of_group = read | {"kafka.group.id": group, "startingOffsets": "group"}
        for expected in (rows, []):
            with group_batch(spark, of_group) as batch:
                assert values(batch.df) == expected
        stream = load(spark.readStream, includeHeaders="true")
        query, batches = run(stream.selectExpr("unix_millis(`timestamp`)", "cast(headers[0].value as string)"))
        query.awaitTermination()
        assert batches == [[(AT_MS, "x"), (AT_MS + 1, "x")]]

    def test_records_are_written(self, spark, kafka, read):
        output = kafka.create_topic(name("output"), partitions=1)
        rows = spark.read.format("groupkafka").options(**read, includeHeaders="true").load().drop("topic")
        to = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": output, "includeHeaders": "true"}
        rows.write.format("groupkafka").options(**to).mode("append").save()
        written = spark.read.format("groupkafka").options(**options(kafka, output, includeHeaders="true")).load()
        assert [(bytes(row.value), row.headers[0].key) for row in written.orderBy("`offset`").collect()] == [
            (b"v0", "h"),
            (b"v1", "h"),
        ]

    def test_what_a_look_gives_is_a_dataframe(self, spark, kafka, group, read):
        servers, topic = {"kafka.bootstrap.servers": kafka.bootstrap_servers}, read["subscribe"]
        commit_for(kafka, group, {(topic, 0): 1})
        looked = explore.look(servers, topic).to_df(spark)
        assert [row.at for row in looked.selectExpr("unix_millis(`timestamp`) at").collect()] == [AT_MS, AT_MS + 1]
        assert explore.topics(read).to_df(spark).selectExpr("unix_millis(`first`) at").first().at == AT_MS
        assert explore.rate(servers, topic).to_df(spark).schema["end"].dataType == TimestampType()
        assert explore.lag(servers, group).to_df(spark).first()["end"] == 2
        assert explore.groups(servers).to_df(spark).count() >= 1


@pytest.mark.parametrize("trigger", [{"availableNow": True}, {"processingTime": "0 seconds"}], ids=["once", "on"])
def test_columns_that_the_source_does_not_have_are_the_last_sentence_of_a_stream(spark, kafka, run, trigger):
    rows = spark.readStream.format("groupkafka").options(**options(kafka, "t")).schema("value string").load()
    query, _ = run(rows, trigger)
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination(60)
    said = "the table, or schema(), has the columns value string, and the source has key binary, value binary, topic"
    assert sentence(raised.value).startswith(said)
    assert "UnboundLocalError" not in str(raised.value)


def test_a_setting_that_spark_refuses_for_all_sources_in_python_is_named(spark, kafka, run):
    setting = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(setting)
    spark.conf.set(setting, "0")  # "no limit", as Spark describes it
    try:
        with pytest.raises(AnalysisException) as of_batch:
            spark.read.format("groupkafka").options(**options(kafka, "t")).load().collect()
        query, _ = run(spark.readStream.format("groupkafka").options(**options(kafka, "t")).load())
        with pytest.raises(StreamingQueryException) as of_stream:
            query.awaitTermination(60)
    finally:
        spark.conf.set(setting, before)
    for raised in (of_batch, of_stream):
        assert sentence(raised.value).startswith(f"{setting} must be above 0 for a source in Python: unset it")
