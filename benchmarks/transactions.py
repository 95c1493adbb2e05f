"""The cost of exactly-once: micro-batches written in transactions against at least once, in turns, on one broker.

python benchmarks/transactions.py
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import partial

from common import Report, in_turns, parser, percentiles, session
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from spark_kafka_group.testing import KafkaCluster
from spark_kafka_group.testing.wait import wait_until

PARTITIONS = 4
CASES = ((1_000, 2), (100_000, 2), (1_000, 4), (1_000, 20), (1_000, 100))
"""Rows of a micro-batch, and its tasks."""
BATCHES = 25
WITHIN_S = 300.0
GUARANTEES: Mapping[str, Mapping[str, str]] = {
    "at-least-once": {},
    "exactly-once": {"deliveryGuarantee": "exactly-once", "kafka.transactional.id": "bench"},
}


def triggers(spark: SparkSession, rows: int, tasks: int, options: Mapping[str, str]) -> list[float]:
    """Milliseconds of each trigger, the first ones left out."""
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", tasks)
    df = stream.load().selectExpr("cast(value as string) key", "repeat('x', 100) value")
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = df.writeStream.format("groupkafka").options(**options).option("checkpointLocation", checkpoint)
        query = writer.start()
        wait_until(partial(_has_run, query), within=WITHIN_S)
        query.stop()
        return [progress["durationMs"]["triggerExecution"] for progress in query.recentProgress][3:BATCHES]


def _has_run(query: StreamingQuery) -> bool:
    return len(query.recentProgress) >= BATCHES or not query.isActive


def main() -> None:
    args = parser(__doc__ or "").parse_args()
    spark = session(args.jars)
    report = Report("transactions", "What does exactly-once cost a micro-batch (4 partitions, 2 cores)?")
    with KafkaCluster() as cluster:
        for rows, tasks in CASES:
            topic = cluster.create_topic(f"t{rows}-{tasks}", partitions=PARTITIONS)
            options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic}
            sides = {
                name: partial(triggers, spark, rows, tasks, {**options, **more}) for name, more in GUARANTEES.items()
            }
            measured = {name: [ms for run in runs for ms in run] for name, runs in in_turns(sides, args.rounds).items()}
            once, least = (percentiles(measured[name])[0] for name in reversed(GUARANTEES))
            cells: dict[str, float | str] = {
                "at least once, ms": least, "exactly once, ms": once, "more, ms": once - least, "times": once / least
            }  # fmt: skip
            report.row(f"{rows:,} rows in {tasks} tasks", cells, triggers_ms=measured)
    spark.stop()


if __name__ == "__main__":
    main()
