"""Queries of several groupkafka sources, and what Spark builds on one: joins, unions, state, foreachBatch, files."""

import pytest
from pyspark.sql import functions as F  # noqa: N812
from support import Record, committed, name, numbered, options, produce, topic_with

T0 = 1_700_000_000_000
QUICK = {"kafka.heartbeat.interval.ms": 300, "kafka.metadata.max.age.ms": 1000}


def stream(spark, kafka, topic, group=None, **more):
    settings = options(kafka, topic, group, **QUICK, **more)
    return spark.readStream.format("groupkafka").options(**settings).load()


def at(seconds, *values, partitions=2):
    """Records with these values as keys, `seconds` after the start of time."""
    return [Record(n % partitions, b"%d" % v, b"v%d" % v, (), T0 + 1000 * seconds) for n, v in enumerate(values)]


@pytest.fixture
def files(spark, tmp_path):
    """Runs a query into parquet over all records up to now; returns its progress."""

    def run(frame, mode="append", place=tmp_path):
        writer = frame.writeStream.format("parquet").option("path", f"{place}/out").outputMode(mode)
        query = writer.option("checkpointLocation", f"{place}/checkpoint").trigger(availableNow=True).start()
        query.awaitTermination()
        return [p for p in query.recentProgress if p.numInputRows]

    run.rows = lambda: spark.read.parquet(f"{tmp_path}/out")
    return run


@pytest.mark.soak
def test_sources_in_one_group_and_in_another_make_a_union(spark, kafka, group, files):
    topics = [topic_with(kafka, numbered(30, 2, first=100 * n), partitions=2) for n in range(3)]
    other = name("group")

    def union():
        one, two = (stream(spark, kafka, topic, group, maxOffsetsPerTrigger=20) for topic in topics[:2])
        return one.union(two).union(stream(spark, kafka, topics[2], other)).select("topic", "value")

    progress = files(union())
    assert [p.numInputRows for p in progress] == [70, 20]
    assert [len(p.sources) for p in progress] == [3, 3]
    assert files.rows().count() == files.rows().distinct().count() == 90
    assert committed(kafka, group) == {(topic, p): 15 for topic in topics[:2] for p in range(2)}
    assert committed(kafka, other) == {(topics[2], p): 15 for p in range(2)}
    # Once more from the checkpoint, with something new for one of them.
    produce(kafka, topics[1], numbered(10, 2, first=130))
    assert [p.numInputRows for p in files(union())] == [10]
    assert files.rows().count() == files.rows().distinct().count() == 100
    assert committed(kafka, group)[topics[1], 0] == 20


@pytest.mark.soak
def test_one_dataframe_used_twice_is_read_whole_on_both_sides(spark, kafka, group, files, tmp_path):
    topic = topic_with(kafka, numbered(20, 2), partitions=2)
    frame = stream(spark, kafka, topic, group).select("key")
    (progress,) = files(frame.union(frame))
    assert len(progress.sources) == 1  # so both sides are whole, in one group
    assert files.rows().groupBy("key").count().where("count = 2").count() == 20
    # With columns of the same name to tell apart, Spark makes two sources of one frame. Without kafka.group.id each has
    # a group of its own.
    both = stream(spark, kafka, topic)
    joined = both.alias("a").join(both.alias("b"), F.expr("a.key = b.key")).select("a.key")
    (progress,) = files(joined, place=tmp_path / "joined")
    assert [s.numInputRows for s in progress.sources] == [20, 20]
    assert spark.read.parquet(f"{tmp_path}/joined/out").distinct().count() == 20


@pytest.mark.soak
def test_streams_joined_with_a_stream_and_with_a_batch_read(spark, kafka, group, files):
    orders, payments, names = (topic_with(kafka, at(0, *range(n)), partitions=2) for n in (10, 6, 4))
    static = spark.read.format("groupkafka").options(**options(kafka, names)).load()

    def side(topic, key):
        frame = stream(spark, kafka, topic, group).withWatermark("timestamp", "10 seconds")
        return frame.selectExpr(f"string(key) {key}", f"timestamp {key}_at")

    def joined():
        within = "o = p and p_at between o_at and o_at + interval 5 seconds"
        paid = side(orders, "o").join(side(payments, "p"), F.expr(within), "left")
        return paid.join(static.selectExpr("string(key) n", "string(value) name"), F.expr("o = n"), "left")

    files(joined())
    rows = {row.o: row for row in files.rows().collect()}
    assert sorted(rows) == [str(n) for n in range(6)]  # the others may yet be paid
    assert [rows[str(n)].name for n in (3, 4)] == ["v3", None]
    # Later records move the watermark past what the state, over a restart, still held.
    for topic in (orders, payments):
        produce(kafka, topic, at(100, 90, 91))
    files(joined())
    rows = {row.o: row for row in files.rows().collect()}
    assert sorted(rows) == sorted([str(n) for n in range(10)] + ["90", "91"])
    assert {row.o for row in rows.values() if row.p is None} == {"6", "7", "8", "9"}
    assert files.rows().count() == 12
    assert set(committed(kafka, group).values()) == {6, 4}


@pytest.mark.soak
def test_state_over_a_restart(spark, kafka, group, files, tmp_path):
    topic = topic_with(kafka, at(0, 1, 2, 3, 4) + at(3, 1, 2), partitions=2)

    def watermarked():
        return stream(spark, kafka, topic, group).withWatermark("timestamp", "10 seconds")

    def counts():
        return watermarked().groupBy(F.window("timestamp", "10 seconds")).count().selectExpr("window.start", "count")

    def once():
        frame = stream(spark, kafka, topic).withWatermark("timestamp", "10 seconds")
        return frame.dropDuplicatesWithinWatermark(["key"]).select("key")

    files(counts())
    files(once(), place=tmp_path / "once")
    produce(kafka, topic, at(5, 1, 5, 6))
    produce(kafka, topic, at(100, 7))
    files(counts())
    files(once(), place=tmp_path / "once")
    assert sorted(row["count"] for row in files.rows().collect()) == [9]
    keys = [bytes(row.key) for row in spark.read.parquet(f"{tmp_path}/once/out").collect()]
    assert sorted(keys) == [b"1", b"2", b"3", b"4", b"5", b"6", b"7"]


@pytest.mark.soak
def test_foreach_batch_reads_its_rows_twice_and_a_batch_cut_short_is_written_once(spark, kafka, group, tmp_path):
    topic = topic_with(kafka, numbered(60, 2), partitions=2)
    cut = [2]  # the batch that fails once, when half of its work is done

    def write(frame, batch_id):
        frame.persist()
        frame.write.mode("overwrite").parquet(f"{tmp_path}/rows/batch={batch_id}")
        if batch_id in cut:
            cut.clear()
            raise ValueError("cut short")
        totals = frame.groupBy("partition").count()
        totals.write.mode("overwrite").parquet(f"{tmp_path}/totals/batch={batch_id}")
        frame.unpersist()

    def run():
        frame = stream(spark, kafka, topic, group, maxOffsetsPerTrigger=20)
        writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", f"{tmp_path}/checkpoint")
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()

    with pytest.raises(Exception, match="cut short"):
        run()
    assert committed(kafka, group) == {(topic, p): 20 for p in range(2)}
    run()
    rows = spark.read.parquet(f"{tmp_path}/rows")
    assert rows.count() == rows.select("value").distinct().count() == 60
    totals = spark.read.parquet(f"{tmp_path}/totals").groupBy("partition").sum("count").collect()
    assert {row["partition"]: row["sum(count)"] for row in totals} == {0: 30, 1: 30}
    assert committed(kafka, group) == {(topic, p): 30 for p in range(2)}
