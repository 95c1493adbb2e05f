"""Queries that tests of several files run."""

import pytest
from into_parquet import Sink
from support import options


@pytest.fixture
def load(spark, kafka):
    """A stream of a topic's values, as numbers."""

    def make(topic, **more):
        stream = spark.readStream.format("groupkafka").options(**options(kafka, topic, **more)).load()
        return stream.selectExpr("cast(cast(value as string) as int) value", "timestamp")

    return make


@pytest.fixture
def run(tmp_path):
    """Start a query that keeps the rows of each batch; stops it in the end. A place is one that a query goes on in."""
    started = []

    def start(df, trigger=None, mode="append", place=None, **settings):
        batches = []

        def keep(rows, batch_id):
            batches.append([tuple(row) for row in rows.collect()])

        writer = df.writeStream.foreachBatch(keep).outputMode(mode)
        checkpoint = tmp_path / (place or f"checkpoint{len(started)}")
        writer = writer.options(**settings).option("checkpointLocation", str(checkpoint))
        query = writer.trigger(**(trigger or {"availableNow": True})).start()
        started.append(query)
        return query, batches

    yield start
    for query in started:
        query.stop()


@pytest.fixture
def sink(spark, tmp_path):
    return Sink(spark, tmp_path)


@pytest.fixture
def progress_often(spark):
    """Progress also of triggers without data, soon: Spark has it every 10 s."""
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", 100)
    yield
    spark.conf.unset("spark.sql.streaming.noDataProgressEventInterval")
