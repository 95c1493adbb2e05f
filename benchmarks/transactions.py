"""The cost of exactly-once: micro-batches written in transactions against at least once, in turns, on one broker.

python benchmarks/transactions.py
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from functools import partial

from common import Report, fill, in_turns, parser, percentiles, session, trigger_ms
from pyspark.sql import SparkSession

from spark_kafka_group.testing import KafkaCluster

PARTITIONS = 4
CASES = ((1_000, 2), (100_000, 2), (1_000, 4), (1_000, 20), (1_000, 100))
"""Rows of a micro-batch, and its tasks."""
FROM_KAFKA = (1_000, 100_000)
"""Rows of a micro-batch that a consumer group reads."""
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


def triggers_from_kafka(spark: SparkSession, rows: int, topic: str, options: Mapping[str, str]) -> list[float]:
    """The same, where a group reads the rows, and its offsets are committed with them, or after them."""
    source = {
        "kafka.bootstrap.servers": options["kafka.bootstrap.servers"], "subscribe": topic,
        "kafka.group.id": f"bench-{uuid.uuid4().hex[:8]}", "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(rows),
    }  # fmt: skip
    source |= {name: value for name, value in options.items() if name == "kafka.transactional.id"}
    df = spark.readStream.format("groupkafka").options(**source).load().select("value")
    return trigger_ms(df, "groupkafka", BATCHES, options)[3:BATCHES]


def main() -> None:
    args = parser(__doc__ or "").parse_args()
    spark = session(args.jars)
    report = Report("transactions", "What does exactly-once cost a micro-batch (4 partitions, 2 cores)?")
    with KafkaCluster() as cluster:
        for rows, tasks in CASES:
            of_case = partial(triggers, spark, rows, tasks)
            compare(report, cluster, f"{rows:,} rows in {tasks} tasks", of_case, args.rounds)
        for rows in FROM_KAFKA:
            fill(cluster, f"input-{rows}", PARTITIONS, rows * (BATCHES + 5), 100)
            of_case = partial(triggers_from_kafka, spark, rows, f"input-{rows}")
            compare(report, cluster, f"{rows:,} rows that a group reads, with its offsets", of_case, args.rounds)
    spark.stop()


def compare(
    report: Report, cluster: KafkaCluster, case: str, run: Callable[[Mapping[str, str]], list[float]], rounds: int
) -> None:
    """A row of the report: both guarantees in turns."""
    topic = cluster.create_topic(f"output-{uuid.uuid4().hex[:8]}", partitions=PARTITIONS)
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic}
    sides = {name: partial(run, {**options, **more}) for name, more in GUARANTEES.items()}
    measured = {name: [ms for of_run in runs for ms in of_run] for name, runs in in_turns(sides, rounds).items()}
    once, least = (percentiles(measured[name])[0] for name in reversed(GUARANTEES))
    cells: dict[str, float | str] = {
        "at least once, ms": least, "exactly once, ms": once, "more, ms": once - least, "times": once / least
    }  # fmt: skip
    report.row(case, cells, triggers_ms=measured)


if __name__ == "__main__":
    main()
