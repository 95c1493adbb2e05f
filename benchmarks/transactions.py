"""The cost of exactly-once: micro-batches written in transactions against at least once, in turns, on one broker.

python benchmarks/transactions.py
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from common import Report, in_turns, parser, percentiles, session, trigger_ms
from pyspark.sql import SparkSession

from spark_kafka_group.testing import KafkaCluster

PARTITIONS = 4
CASES = ((1_000, 2), (100_000, 2), (1_000, 4), (1_000, 20), (1_000, 100))
"""Rows of a micro-batch, and its tasks."""
BATCHES = 25
GUARANTEES: Mapping[str, Mapping[str, str]] = {
    "at-least-once": {},
    "exactly-once": {"deliveryGuarantee": "exactly-once", "kafka.transactional.id": "bench"},
}


def triggers(spark: SparkSession, rows: int, tasks: int, options: Mapping[str, str]) -> list[float]:
    """Milliseconds of each trigger, the first ones left out."""
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", tasks)
    df = stream.load().selectExpr("cast(value as string) key", "repeat('x', 100) value")
    return trigger_ms(df, "groupkafka", BATCHES, options)[3:BATCHES]


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
