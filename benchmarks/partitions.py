"""A stream over very many partitions: groupkafka against Spark's own kafka source, in turns, on one broker.

python benchmarks/partitions.py --jars folder-of-jars      # or without --jars where --packages can download

Micro-batches have ten records of each partition. Both sides have kafka.fetch.max.wait.ms=10: with Kafka's default of
500 each task of the kafka source waits so long at the end of a log, and a micro-batch takes minutes. With the larger
number of partitions only groupkafka runs.
"""

from __future__ import annotations

import statistics
import tempfile
from typing import Any

from common import Goal, Report, parser, session
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from streaming import PHASES

from spark_kafka_group.testing import KafkaCluster
from spark_kafka_group.testing.node import wait_until

EACH = 10
"""Records of a partition in a micro-batch."""

UNREAD = 3
"""Micro-batches that are left in the topic when the last one that counts has ended."""


def fill_evenly(cluster: KafkaCluster, topic: str, partitions: int, batches: int) -> None:
    """So many micro-batches of records of 100 bytes."""
    cluster.create_topic(topic, partitions=partitions)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 100})
    value = bytes(100)
    for _ in range(batches):
        for partition in range(partitions):
            for _ in range(EACH):
                producer.produce(topic, value, partition=partition)
        producer.flush()


def progress_of(spark: SparkSession, source: str, options: dict[str, str], batches: int) -> list[dict[str, Any]]:
    """Spark's report of the first micro-batches of a new query."""
    with tempfile.TemporaryDirectory() as directory:
        query = (
            spark.readStream.format(source)
            .options(**options)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", f"{directory}/checkpoint")
            .start()
        )
        wait_until(lambda: len(query.recentProgress) >= batches, within=240)
        query.stop()
        return [dict(p) for p in query.recentProgress[:batches]]


def milliseconds(progress: list[dict[str, Any]]) -> dict[str, float]:
    """Medians of a micro-batch's phases, the first two left out."""
    return {name: statistics.median(p["durationMs"].get(name, 0) for p in progress[2:]) for name in PHASES}


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--partitions", type=int, default=1_000)
    arguments.add_argument("--more-partitions", type=int, default=5_000)
    arguments.add_argument("--batches", type=int, default=8)
    args = arguments.parse_args()
    spark = session(args.jars)
    report = Report("partitions", "How long is a trigger with very many partitions (10 records of each)?")
    for partitions, sides in ((args.partitions, ("kafka", "groupkafka")), (args.more_partitions, ("groupkafka",))):
        with KafkaCluster() as cluster:
            fill_evenly(cluster, "many", partitions, args.batches + UNREAD)
            options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": "many"}
            options["kafka.fetch.max.wait.ms"] = "10"
            options |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(EACH * partitions)}
            runs: dict[str, list[dict[str, float]]] = {source: [] for source in sides}
            for turn in range(args.rounds + 1):
                for source, done in runs.items():
                    progress = progress_of(spark, source, options, args.batches)
                    assert all(p["numInputRows"] == EACH * partitions for p in progress)
                    if turn:
                        done.append(milliseconds(progress))
        phases = {
            source: {name: statistics.median(one[name] for one in done) for name in PHASES}
            for source, done in runs.items()
        }
        cells: dict[str, float | str] = {
            f"{source} trigger ms": phases[source]["triggerExecution"] if source in phases else "-"
            for source in ("kafka", "groupkafka")
        }
        for name in ("latestOffset", "queryPlanning", "addBatch"):
            cells[f"groupkafka {name} ms"] = phases["groupkafka"][name]
        goal = None
        if "kafka" in phases:
            cells["share"] = phases["groupkafka"]["triggerExecution"] / phases["kafka"]["triggerExecution"]
            goal = Goal("share", at_most=0.1)
        else:
            cells["share"] = "-"
        report.row(f"{partitions:,} partitions", cells, goal, phases=phases)
    spark.stop()


if __name__ == "__main__":
    main()
