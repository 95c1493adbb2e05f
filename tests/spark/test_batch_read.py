"""spark.read.format("groupkafka"): rows, ranges and errors of a batch read."""

import json

import pytest
from chispa import assert_df_equality
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from support import Record, commit_for, committed, members, name, numbered, options, produce, topic_with

from spark_kafka_group import read_where

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]


def read(spark, settings):
    return spark.read.format("groupkafka").options(**settings).load()


def expected(spark, topic, records, include_headers=False):
    """The rows that `records` make, in the source's own schema."""
    offsets: dict[int, int] = {}
    rows = []
    for record in records:
        offset = offsets.get(record.partition, 0)
        offsets[record.partition] = offset + 1
        row = [record.key, record.value, topic, record.partition, offset, record.timestamp_ms // 1000, 0]
        rows.append([*row, [tuple(h) for h in record.headers] or None] if include_headers else row)
    ddl = "key binary, value binary, topic string, partition int, offset bigint, timestamp long, timestampType int"
    if include_headers:
        ddl += ", headers array<struct<key: string, value: binary>>"
    df = spark.createDataFrame(rows, ddl)
    return df.withColumn("timestamp", df.timestamp.cast("timestamp"))


def assert_rows(spark, df, topic, records, include_headers=False):
    assert_df_equality(
        df, expected(spark, topic, records, include_headers), ignore_row_order=True, ignore_nullable=True
    )


@pytest.mark.parametrize(
    ("decoder", "codec"),
    [
        *(("c", codec) for codec in CODECS),
        *(pytest.param("python", codec, marks=() if codec == "gzip" else pytest.mark.soak) for codec in CODECS),
    ],
)
def test_rows_equal_what_was_produced_with_every_codec(spark, kafka, codec, decoder):
    records = [
        Record(0, b"key", b"value"),
        Record(1, None, b"null key"),
        Record(2, b"null value", None),
        Record(0, b"", b""),
        Record(2, "schlüssel".encode(), bytes(range(256))),
        Record(0, b"h", b"one header", (("a", b"1"),)),
        Record(0, b"h", b"duplicates in order", (("a", b"1"), ("b", b""), ("a", b"2"), ("a", b"2"))),
        *[Record(n % 3, b"%d" % n, b"x" * (n % 97), timestamp_ms=1_600_000_000_000 + n * 1000) for n in range(2000)],
    ]
    topic = topic_with(kafka, [])
    produce(kafka, topic, records, codec, linger_ms=20)
    df = read(spark, options(kafka, topic, includeHeaders="true", decoder=decoder))
    assert_rows(spark, df, topic, records, include_headers=True)


@pytest.mark.parametrize("decoder", ["c", "python"])
@pytest.mark.parametrize(
    "columns", ["value,offset", "offset", "headers,key", "timestampType,timestamp,partition,topic", "value"]
)
def test_named_columns_have_the_values_that_they_have_among_all(spark, kafka, columns, decoder):
    topic = topic_with(kafka, [Record(n % 3, b"k%d" % n, b"v%d" % n, (("h", b"%d" % n),)) for n in range(30)])
    every = read(spark, options(kafka, topic, includeHeaders="true", decoder=decoder))
    named = read(spark, options(kafka, topic, columns=columns, decoder=decoder))
    assert named.columns == columns.split(",")
    assert_df_equality(named, every.select(*named.columns), ignore_row_order=True, ignore_nullable=True)


def test_named_columns_can_be_filtered_and_counted(spark, kafka):
    topic = topic_with(kafka, numbered(30, 3))
    settings = options(kafka, topic, columns="partition,offset")
    assert read(spark, settings).count() == 30
    assert read(spark, settings).where("partition = 1 and offset >= 4").count() == 6
    assert read_where(spark, settings, "partition = 1 and offset >= 4").columns == ["partition", "offset"]
    headers = read(spark, options(kafka, topic, columns="value", includeHeaders="true"))
    assert headers.columns == ["value", "headers"]


def test_a_name_that_is_no_column_is_an_error_that_lists_the_columns(spark, kafka):
    with pytest.raises(AnalysisException, match=r"columns \(vlaue,key\) has 'vlaue', which is no column: take some of"):
        read(spark, options(kafka, "any", columns="vlaue,key"))


@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
def test_records_from_one_byte_to_five_megabytes(spark, kafka, codec):
    topic = name("large")
    kafka.create_topic(topic, partitions=2, configs={"max.message.bytes": "8000000"})
    sizes = [1, 10, 1_000, 100_000, 1_000_000, 5_000_000, 1, 2_000_000]
    records = [Record(n % 2, b"%d" % n, bytes([n]) * size) for n, size in enumerate(sizes)]
    produce(kafka, topic, records, codec, max_request_size=8_000_000)
    df = read(spark, options(kafka, topic, **{"kafka.max.partition.fetch.bytes": 1000, "kafka.fetch.max.bytes": 2000}))
    assert_rows(spark, df, topic, records)


def test_start_and_end_inside_a_compressed_batch(spark, kafka):
    records = numbered(300, 1)
    topic = topic_with(kafka, [], partitions=1)
    produce(kafka, topic, records, "lz4", linger_ms=100)
    ends = {"startingOffsets": json.dumps({topic: {"0": 37}}), "endingOffsets": json.dumps({topic: {"0": 251}})}
    rows = read(spark, options(kafka, topic) | ends).select("offset").collect()
    assert [row.offset for row in rows] == list(range(37, 251))


def test_several_topics(spark, kafka):
    one, other = topic_with(kafka, numbered(30, 3)), topic_with(kafka, numbered(50, 3))
    counts = read(spark, options(kafka, f"{one},{other}")).groupBy("topic").count().collect()
    assert {row["topic"]: row["count"] for row in counts} == {one: 30, other: 50}


def test_a_schema_without_headers_is_that_of_sparks_own_source(spark, kafka):
    df = read(spark, options(kafka, "not-even-a-topic"))
    assert df.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )


def test_an_empty_topic_gives_no_rows(spark, kafka):
    assert read(spark, options(kafka, topic_with(kafka, []))).count() == 0


def test_a_batch_read_starts_at_the_groups_offset_and_neither_joins_nor_commits(spark, kafka, group):
    topic = topic_with(kafka, numbered(100, 1), partitions=1)
    commit_for(kafka, group, {(topic, 0): 90})
    rows = read(spark, options(kafka, topic, group, startingOffsets="group")).select("offset").collect()
    assert [row.offset for row in rows] == list(range(90, 100))
    assert committed(kafka, group) == {(topic, 0): 90}
    assert members(kafka, group) == []


def test_without_committed_offsets_a_batch_read_starts_at_the_first_record(spark, kafka, group):
    topic = topic_with(kafka, numbered(10, 1), partitions=1)
    settings = options(kafka, topic, group)
    del settings["startingOffsets"]
    assert read(spark, settings).count() == 10


def test_a_reset_policy_of_none_names_the_partitions_without_an_offset(spark, kafka, group):
    topic = topic_with(kafka, numbered(10, 2), partitions=2)
    commit_for(kafka, group, {(topic, 0): 1})
    settings = options(kafka, topic, group, startingOffsets="group") | {"kafka.auto.offset.reset": "none"}
    with pytest.raises(PySparkException, match=f"committed no offset for {topic}-1 and kafka.auto.offset.reset"):
        read(spark, settings).count()


def test_a_topic_that_does_not_exist_is_named(spark, kafka):
    with pytest.raises(PySparkException, match="subscribe names no-such-topic"):
        read(spark, options(kafka, "no-such-topic")).count()


def test_starting_offsets_must_name_every_partition(spark, kafka):
    topic = topic_with(kafka, numbered(10, 2), partitions=2)
    settings = options(kafka, topic, startingOffsets=json.dumps({topic: {"0": 1}}))
    with pytest.raises(PySparkException, match=f"startingOffsets names no offset for {topic}-1"):
        read(spark, settings).count()


def test_records_that_are_gone_are_an_error_that_names_what_there_is(spark, kafka):
    topic = topic_with(kafka, numbered(100, 1), partitions=1)
    ends = {"startingOffsets": json.dumps({topic: {"0": 200}}), "endingOffsets": json.dumps({topic: {"0": 300}})}
    with pytest.raises(
        PySparkException,
        match=rf"COULD_NOT_READ_OFFSET_RANGE\] {topic}-0: the read must end at 300, and the log ends at 100",
    ):
        read(spark, options(kafka, topic) | ends).count()


def test_load_checks_options_before_it_touches_the_network(spark):
    settings = {"kafka.bootstrap.servers": "192.0.2.1:1", "subscribe": "t"}
    read(spark, settings).printSchema()  # no broker there, and none asked
    misspelt = (
        "spark_kafka_group.errors.OptionError: option startingOffset is not known; the nearest is startingOffsets"
    )
    with pytest.raises(AnalysisException, match=misspelt) as raised:
        read(spark, settings | {"startingOffset": "earliest"})
    assert "Traceback" not in str(raised.value)
    with pytest.raises(AnalysisException, match="key and value are binary columns"):
        read(spark, settings | {"kafka.key.deserializer": "x"})


def test_a_table_is_an_error_that_names_the_view_and_the_view_is_read(spark, kafka):
    topic = topic_with(kafka, numbered(10, 2), partitions=2)
    source = f"USING groupkafka OPTIONS (`kafka.bootstrap.servers` '{kafka.bootstrap_servers}', subscribe '{topic}')"
    with pytest.raises(AnalysisException, match="take CREATE TEMPORARY VIEW") as raised:
        spark.sql(f"CREATE TABLE orders_of_kafka {source}")
    assert "Traceback" not in str(raised.value)
    spark.sql(f"CREATE TEMPORARY VIEW orders_of_kafka {source}")
    try:
        assert spark.table("orders_of_kafka").count() == 10
    finally:
        spark.catalog.dropTempView("orders_of_kafka")


def test_a_table_that_has_columns_is_read_with_options_of_the_read_alone(spark, kafka):
    topic = topic_with(kafka, numbered(10, 2), partitions=2)
    columns = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
    settings = f"`kafka.bootstrap.servers` = '{kafka.bootstrap_servers}', subscribe = '{topic}'"
    spark.sql(f"CREATE TABLE orders_with_columns ({columns}, timestampType int) USING groupkafka")
    try:
        assert spark.sql(f"SELECT * FROM orders_with_columns WITH ({settings})").count() == 10
        assert spark.read.options(**options(kafka, topic)).table("orders_with_columns").count() == 10
        with pytest.raises(PySparkException, match=r"the source has no options\. .* WITH \(") as raised:
            spark.table("orders_with_columns").count()
        assert "Traceback" not in str(raised.value)
    finally:
        spark.sql("DROP TABLE orders_with_columns")


def test_a_table_that_has_other_columns_than_the_source_is_an_error_that_names_them(spark, kafka):
    topic = topic_with(kafka, numbered(1, 1), partitions=1)
    settings = f"`kafka.bootstrap.servers` = '{kafka.bootstrap_servers}', subscribe = '{topic}'"
    spark.sql("CREATE TABLE orders_to_write (value STRING) USING groupkafka")
    try:
        with pytest.raises(
            PySparkException, match="has the columns value string, and the source has key binary, value"
        ):
            spark.sql(f"SELECT * FROM orders_to_write WITH ({settings})").count()
        with pytest.raises(
            PySparkException, match="has the columns value string, and the source has value binary: give"
        ):
            spark.sql(f"SELECT * FROM orders_to_write WITH ({settings}, columns = 'value')").count()
    finally:
        spark.sql("DROP TABLE orders_to_write")


def test_a_broker_that_does_not_answer_is_an_error_within_the_request_timeout(spark):
    settings = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "kafka.request.timeout.ms": "2000"}
    with pytest.raises(PySparkException, match=r"connecting to 127.0.0.1:1") as raised:
        read(spark, settings).count()
    assert "Traceback" not in str(raised.value)


def test_max_tasks_and_records_per_task_set_the_number_of_tasks(spark, kafka):
    topic = topic_with(kafka, numbered(400, 4), partitions=4)
    assert read(spark, options(kafka, topic)).rdd.getNumPartitions() == 1
    assert read(spark, options(kafka, topic, recordsPerTask=10)).rdd.getNumPartitions() == 4
    assert read(spark, options(kafka, topic, recordsPerTask=10, maxTasks=3)).rdd.getNumPartitions() == 3


def test_only_some_columns_and_a_limit(spark, kafka):
    topic = topic_with(kafka, numbered(400, 4), partitions=4)
    df = read(spark, options(kafka, topic))
    assert df.limit(3).count() == 3
    assert df.agg({"offset": "max"}).first()[0] == 99


def test_an_option_that_is_none_is_left_out_by_spark_from_4_3_on(spark, kafka):
    reader = spark.read.format("groupkafka").options(**options(kafka, "unused")).option("minPartitions", None)
    if spark.version.startswith("4.2."):
        with pytest.raises(Py4JJavaError, match='because "str" is null'):
            reader.load()
    else:
        assert "value" in reader.load().columns
