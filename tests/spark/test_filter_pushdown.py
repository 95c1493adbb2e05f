"""Filters that narrow a batch read: the same rows, from fewer records."""

import logging
import random
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from kafka import KafkaProducer
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf
from pyspark.sql.datasource import DataSourceReader
from support import Record, name, numbered, options, produce, topic_with

from spark_kafka_group import OptionError, group_batch, read_where
from spark_kafka_group.batch.read_where import FILTER_PUSHDOWN

START_MS = 1_700_000_000_000
SEED = 3
TIME = "timestamp '2023-11-14 22:13:{:06.3f}'"  # START_MS is 22:13:20


def load(spark, settings, **more):
    return spark.read.format("groupkafka").options(**settings, **more).load()


def scanned(df):
    """Rows that the scan of `df` gave to Spark's filter, from Spark's metric "number of output rows"."""
    plan = df._jdf.queryExecution().executedPlan()
    df._jdf.collectToPython()
    return plan.collectLeaves().apply(0).metrics().get("numOutputRows").get().value()


@pytest.fixture
def pushdown(spark):
    """Spark's own setting, which is off by default."""
    spark.conf.set(FILTER_PUSHDOWN, "true")
    yield
    spark.conf.set(FILTER_PUSHDOWN, "false")


@pytest.fixture(scope="module")
def topics(kafka):
    """Three topics whose timestamps are in no order; one has gaps in its offsets, one broker's times."""
    rng = random.Random(1)
    prefix = name("filters")
    for suffix, configs in (("a", {}), ("b", {"message.timestamp.type": "LogAppendTime"}), ("tx", {})):
        kafka.create_topic(f"{prefix}.{suffix}", partitions=3, configs=configs)
    for suffix in ("a", "b"):
        records = [
            Record(rng.randrange(3), None, b"x", timestamp_ms=START_MS + rng.randrange(10_000)) for _ in range(300)
        ]
        produce(kafka, f"{prefix}.{suffix}", records, rng.choice([None, "lz4"]), linger_ms=5)
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, transactional_id=name("tx"))
    producer.init_transactions()
    for _ in range(10):
        producer.begin_transaction()
        for _ in range(rng.randrange(1, 8)):
            ms = START_MS + rng.randrange(10_000)
            producer.send(f"{prefix}.tx", partition=rng.randrange(3), value=b"x", timestamp_ms=ms)
        producer.commit_transaction()
    producer.close()
    return prefix


def random_condition(rng, prefix):
    """A usual condition: some parts can narrow the read, others cannot."""
    names = [f"{prefix}.{suffix}" for suffix in ("a", "b", "tx", "none")]
    time = TIME.format(20 + rng.randrange(-1_000, 12_000) / 1000)
    op = rng.choice(["=", "<", "<=", ">", ">=", "<>", "<=>"])
    offset = rng.randrange(-5, 120)
    simple = rng.choice(
        [
            f"offset {op} {offset}",
            f"{offset} {op} offset",
            f"offset between {offset} and {offset + 30}",
            f"offset in ({offset}, {offset + 1}, {rng.choice(['null', offset + 40])})",
            f"offset > {offset}.5",
            f"offset % 3 = {offset % 3}",
            f"cast(offset as string) like '%{offset % 10}'",
            f"partition {op} {rng.randrange(3)}",
            f"partition in (0, {rng.randrange(4)})",
            f"topic {op} '{rng.choice(names)}'",
            f"topic in ('{rng.choice(names)}', '{rng.choice(names)}')",
            f"topic like '{prefix}.{rng.choice(['a', 't', '%x', '_', '%'])}%'",
            f"topic like '%.{rng.choice(['a', 'b', 'tx'])}'",
            f"timestamp {rng.choice(['>', '>=', '<', '<=', '='])} {time}",
            f"timestamp between {time} and {time} + interval 2 seconds",
            f"date_trunc('second', timestamp) = {TIME.format(20 + rng.randrange(10))}",
            "timestamp > current_timestamp() - interval 1 hour",
            "timestamp is not null and headers is null" if rng.random() < 0.1 else "key is null",
        ]
    )
    if rng.random() < 0.2:
        return f"not ({simple})"
    return simple


def combined(rng, prefix):
    parts = [random_condition(rng, prefix) for _ in range(rng.randrange(1, 4))]
    condition = parts[0]
    for part in parts[1:]:
        condition = f"({condition}) {rng.choice(['and', 'and', 'or'])} ({part})"
    return condition


def summary(*more):
    return [
        *more,
        sf.count("*").alias("rows"),
        sf.sum(sf.xxhash64("topic", "partition", "offset", "timestamp") % 10**9),
    ]


@pytest.mark.soak
def test_random_conditions_give_the_rows_of_a_read_that_is_not_narrowed(spark, kafka, topics, pushdown):
    settings = options(kafka, topics) | {"subscribePattern": f"{topics}.*", "includeHeaders": "true"}
    del settings["subscribe"]
    rng = random.Random(SEED)
    conditions = [combined(rng, topics) for _ in range(8)]
    every = load(spark, settings).cache()
    try:
        numbered_conditions = list(enumerate(conditions))
        expected = [every.where(c).select(sf.lit(n).alias("n"), "*") for n, c in numbered_conditions]
        # All in one query, of frames that Spark must not mix up.
        got = [read_where(spark, settings, c).select(sf.lit(n).alias("n"), "*") for n, c in numbered_conditions]
        pushing = settings | {"pushDownPredicate": "true"}
        pushed = [load(spark, pushing).where(c).select(sf.lit(n).alias("n"), "*") for n, c in numbered_conditions]
        summaries = []
        for frames in (expected, got, pushed):
            union = frames[0]
            for frame in frames[1:]:
                union = union.unionAll(frame)
            summaries.append({row.n: tuple(row)[1:] for row in union.groupBy("n").agg(*summary()).collect()})
    finally:
        every.unpersist()
    for n, condition in numbered_conditions:
        assert summaries[0].get(n) == summaries[1].get(n), f"read_where: {condition}"
        assert summaries[0].get(n) == summaries[2].get(n), f"pushDownPredicate: {condition}"
    assert all(rows for rows, _ in summaries[0].values())
    assert len(summaries[0]) == len(conditions)
    assert conditions[6] == "offset between 20 and 50"
    assert scanned(load(spark, pushing).where(conditions[6])) == summaries[0][6][0]


def test_only_what_can_pass_is_read_and_the_log_says_it(spark, kafka, caplog):
    topic = topic_with(kafka, numbered(300, 3))
    condition = f"topic = '{topic}' and partition in (1, 2) and offset >= 90 and value is not null"
    with caplog.at_level(logging.INFO, "spark_kafka_group"):
        df = read_where(spark, options(kafka, topic, minPartitions=8), condition)
    assert f"reads {topic}-1[90,100) {topic}-2[90,100)" in caplog.text
    assert (scanned(df), df.count()) == (20, 20)
    assert scanned(read_where(spark, options(kafka, topic), "offset > 5 or partition = 1")) == 300
    assert read_where(spark, options(kafka, topic), "offset < 5 and offset > 9").count() == 0
    later = read_where(spark, options(kafka, topic), "timestamp > current_timestamp()")
    assert (later.count(), later.columns) == (0, df.columns)
    assert spark.conf.get(FILTER_PUSHDOWN) == "false"


def test_a_narrowed_dataframe_may_be_filtered_joined_and_read_again(spark, kafka):
    topic = topic_with(kafka, numbered(300, 3))
    df = read_where(spark, options(kafka, topic), "offset >= 50")
    assert df.where("offset >= 90").count() == 30
    assert df.count() == 150
    assert df.where("offset >= 90").union(df.where("offset < 55")).count() == 45
    produce(kafka, topic, numbered(30, 3))
    assert df.count() == 150
    assert read_where(spark, options(kafka, topic), sf.col("offset") >= 50).count() == 180


def test_with_the_option_spark_pushes_the_filters_of_a_query_and_shows_them(spark, kafka, pushdown, capsys):
    topic = topic_with(kafka, numbered(300, 3))
    settings = options(kafka, topic, pushDownPredicate="true")
    condition = f"topic = '{topic}' and offset >= 90 and partition = 1 and timestamp >= '2020-01-01'"
    df = load(spark, settings).where(condition)
    assert (scanned(df), df.count()) == (10, 10)
    df.explain("formatted")
    shown = capsys.readouterr().out
    pushed = next(line for line in shown.splitlines() if line.startswith("PushedFilters"))
    result = [f"EqualTo(topic,{topic})", "EqualTo(partition,1)", "GreaterThanOrEqual(offset,90)", "IsNotNull(offset)"]
    assert all(one in pushed for one in result), pushed
    assert "timestamp" not in pushed  # it narrows as well, but is evaluated on the rows
    assert re.search(r"Condition : .*timestamp.* >= 2020-01-01", shown)
    without = load(spark, options(kafka, topic)).where(condition)
    assert (scanned(without), without.count()) == (300, 10)


def test_without_sparks_setting_the_option_is_an_error_that_names_it_and_without_the_option_nothing_is(spark, kafka):
    settings = options(kafka, topic_with(kafka, numbered(30, 3)))
    assert load(spark, settings).where("offset >= 5").count() == 15
    with pytest.raises(PySparkException, match=FILTER_PUSHDOWN):
        load(spark, settings, pushDownPredicate="true").where("offset >= 5").count()


@pytest.mark.skipif(hasattr(DataSourceReader, "pushLimit"), reason="a Spark that keeps scans apart")
def test_spark_gives_what_one_query_narrowed_to_the_next_one_so_the_option_is_off_by_default(spark, kafka, pushdown):
    df = load(spark, options(kafka, topic_with(kafka, numbered(300, 3))), pushDownPredicate="true")
    assert df.where("offset >= 90").count() == 30
    assert df.count() == 30  # of 300


def test_group_batch_refuses_the_option_as_it_commits_what_an_action_may_not_have_read(spark, kafka, group):
    settings = options(kafka, "t", group, pushDownPredicate="true")
    with (
        pytest.raises(OptionError, match="pushDownPredicate cannot be used with group_batch"),
        group_batch(spark, settings),
    ):
        pass


def test_several_threads_may_narrow_reads_of_one_session_and_its_setting_stays_as_it_was(spark, kafka, caplog):
    topic = topic_with(kafka, numbered(300, 3))
    conditions = [f"offset >= {90 + n} and partition = 1" for n in range(8)]

    def reads(condition):
        for _ in range(2):
            read_where(spark, options(kafka, topic), condition)

    with caplog.at_level(logging.INFO, "spark_kafka_group"), ThreadPoolExecutor(8) as pool:
        list(pool.map(reads, conditions))
    result = [f"where {condition}: reads {topic}-1[{90 + n},100)" for n, condition in enumerate(conditions)]
    assert sorted(m for m in caplog.messages if m.startswith("where")) == sorted(result * 2)
    assert spark.conf.get(FILTER_PUSHDOWN) == "false"


def test_a_condition_that_sparks_python_half_fails_at_narrows_nothing_and_what_this_source_says_is_still_an_error(
    spark, kafka, caplog
):
    settings = options(kafka, topic_with(kafka, numbered(30, 3)))
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")  # where this is in the year 10000 in UTC
    try:
        assert read_where(spark, settings, "timestamp <= '9999-12-31 23:59:59' and offset >= 5").count() == 15
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert "does not narrow the read, as Spark cannot plan it" in caplog.text
    assert "OverflowError: date value out of range" in caplog.text
    with pytest.raises(PySparkException, match="subscribe names none, which the cluster does not have"):
        read_where(spark, settings | {"subscribe": "none"}, "offset >= 5")
    assert spark.conf.get(FILTER_PUSHDOWN) == "false"
