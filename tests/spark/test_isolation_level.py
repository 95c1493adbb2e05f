"""kafka.isolation.level in Spark: streams, batch reads, and batch reads that commit."""

import pytest
from pyspark.errors import PySparkException
from support import committed, name, options
from support.transactions import Writer

from spark_kafka_group import group_batch

COMMITTED = {"kafka.isolation.level": "read_committed"}


@pytest.fixture
def topic(kafka):
    """With one partition."""
    return kafka.create_topic(name("transactions"), partitions=1)


@pytest.fixture
def writer(kafka, topic):
    """A transactional producer."""
    with Writer(kafka, topic) as writer:
        yield writer


def values(df):
    return sorted(int(row.value) for row in df.selectExpr("cast(value as string) value").collect())


@pytest.mark.parametrize("level", ["read_committed", pytest.param("read_uncommitted", marks=pytest.mark.soak)])
def test_a_stream_shows_what_its_level_says_and_commits_batches_without_rows(
    spark, kafka, group, topic, writer, tmp_path, level
):
    """Values are offsets, and a batch has three of them, as in Spark's own suite."""
    batches = []
    settings = options(kafka, topic, group, maxOffsetsPerTrigger=3, **{"kafka.isolation.level": level})

    def run():
        batches.clear()
        stream = spark.readStream.format("groupkafka").options(**settings).load()
        query = (
            stream.writeStream.foreachBatch(lambda df, batch_id: batches.append(values(df)))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return list(batches)

    writer.write(*range(5)).commit()  # 5 is the marker
    writer.write(*range(6, 11)).abort()
    writer.write(*range(12, 17))
    if level == "read_committed":
        assert run() == [[0, 1, 2], [3, 4], [], []]
        assert committed(kafka, group) == {(topic, 0): 12}
        writer.commit()
        assert run() == [[12, 13, 14], [15, 16]]
    else:
        assert run() == [[0, 1, 2], [3, 4], [6, 7, 8], [9, 10], [12, 13, 14], [15, 16]]
        assert committed(kafka, group) == {(topic, 0): 17}
        writer.commit()
        assert run() == [[]]
    assert committed(kafka, group) == {(topic, 0): 18}


def test_batch_reads_as_in_sparks_own_suite(spark, kafka, topic, writer):
    def read(level, **more):  # with a load() of its own: Spark asks a Python source once where a DataFrame ends
        settings = options(kafka, topic, **{"kafka.isolation.level": level}, **more)
        return values(spark.read.format("groupkafka").options(**settings).load())

    writer.write(*range(1, 6))
    assert (read("read_committed"), read("read_uncommitted")) == ([], [*range(1, 6)])
    writer.commit()
    assert read("read_committed") == [*range(1, 6)]
    writer.write(*range(6, 11)).abort()
    assert (read("read_committed"), read("read_uncommitted")) == ([*range(1, 6)], [*range(1, 11)])
    writer.write(*range(11, 16)).commit()
    assert read("read_committed") == [*range(1, 6), *range(11, 16)]
    assert read("read_uncommitted") == [*range(1, 16)]
    # Tasks that share a partition find out for themselves what was aborted.
    assert read("read_committed", minPartitions=6) == [*range(1, 6), *range(11, 16)]


def test_a_batch_that_commits_goes_on_after_the_aborted_and_before_the_open_transaction(
    spark, kafka, group, topic, writer
):
    settings = options(kafka, topic, group, **COMMITTED) | {"startingOffsets": "group"}
    writer.write(0, 1).commit()
    writer.write(3).abort()
    writer.write(5)
    with group_batch(spark, settings) as batch:
        assert values(batch.df) == [0, 1]
        writer.commit()
        assert values(batch.df) == [0, 1]
    assert committed(kafka, group) == {(topic, 0): 5}
    with group_batch(spark, settings) as batch:
        assert values(batch.df) == [5]
    assert committed(kafka, group) == {(topic, 0): 7}


def test_an_end_beyond_the_last_stable_offset_reaches_the_user_as_an_error(spark, kafka, topic, writer):
    writer.write(0)
    settings = options(kafka, topic, endingOffsets=f'{{"{topic}": {{"0": 1}}}}', **COMMITTED)
    with pytest.raises(PySparkException, match="beyond the last stable offset"):
        spark.read.format("groupkafka").options(**settings).load().count()
