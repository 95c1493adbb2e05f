"""The cost of an idle query: groupkafka against Spark's own kafka source, in turns, on one broker.

python benchmarks/idle.py --jars folder-of-jars      # or without --jars where --packages can download

The default trigger asks for new data every 10 ms. Requests are those that the broker's request log names between two
moments; CPU is that of Spark's JVM and of the Python processes under it. How soon a record is seen is the time from its
acknowledgement to the end of the trigger's latestOffset, by Spark's progress report, which knows milliseconds.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections import Counter
from datetime import datetime
from pathlib import Path

from common import Goal, Report, cpu_seconds, parser, percentiles, session
from kafka import KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from spark_kafka_group.testing import KafkaCluster
from spark_kafka_group.testing.node import wait_until

TOPIC = "quiet"
REQUEST_LOG = "kafka.request.logger"
BROKERS_OWN = {"BROKER_HEARTBEAT", "FETCH_SNAPSHOT", "VOTE", "ALTER_PARTITION"}


def log_requests(cluster: KafkaCluster, level: str) -> None:
    """Whether the broker writes a line for each request (KIP-412)."""
    cluster.admin.alter_configs([ConfigResource(ConfigResourceType.BROKER_LOGGER, "1", {REQUEST_LOG: level})])


def requests_between(log: Path, begin: int, end: int) -> Counter[str]:
    """Kinds of the requests that the log names between two of its bytes."""
    with log.open("rb") as file:
        file.seek(begin)
        text = file.read(end - begin).decode(errors="replace")
    kinds = (line.partition('"requestApiKeyName":"')[2].partition('"')[0] for line in text.splitlines())
    return Counter(kind for kind in kinds if kind and kind not in BROKERS_OWN)


def quiet_query(spark: SparkSession, cluster: KafkaCluster, source: str, directory: str) -> StreamingQuery:
    """A query with the default trigger that has read everything."""
    query = (
        spark.readStream.format(source)
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .start()
    )
    query.processAllAvailable()
    return query


def seen_after(query: StreamingQuery, producer: KafkaProducer) -> float:
    """Milliseconds from a record's acknowledgement to the trigger that plans it."""
    batches = len([p for p in query.recentProgress if p["numInputRows"]])
    producer.send(TOPIC, b"one more").get(timeout=30)
    acknowledged_ms = time.time() * 1000
    wait_until(lambda: len([p for p in query.recentProgress if p["numInputRows"]]) > batches, within=30)
    progress = [p for p in query.recentProgress if p["numInputRows"]][-1]
    began_ms = datetime.fromisoformat(progress["timestamp"]).timestamp() * 1000
    return began_ms + progress["durationMs"]["latestOffset"] - acknowledged_ms


def measure(spark: SparkSession, cluster: KafkaCluster, source: str, seconds: float, records: int) -> dict[str, object]:
    """One query: its cost while nothing comes, then how soon it sees records that come one by one."""
    jvm = spark.sparkContext._gateway.proc.pid
    pauses = random.Random(7)
    with tempfile.TemporaryDirectory() as directory:
        query = quiet_query(spark, cluster, source, directory)
        for _ in range(5):
            seen_after(query, producer := KafkaProducer(bootstrap_servers=cluster.bootstrap_servers))
            producer.close()
        log = cluster.nodes[0].log
        log_requests(cluster, "DEBUG")
        time.sleep(2)  # connections of the tool that said so are gone, and the query is quiet again
        begin, cpu, began = log.stat().st_size, sum(cpu_seconds(jvm)), time.monotonic()
        time.sleep(seconds)
        end, cpu, took = log.stat().st_size, sum(cpu_seconds(jvm)) - cpu, time.monotonic() - began
        kinds = requests_between(log, begin, end)
        log_requests(cluster, "INFO")
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
        seen = []
        for _ in range(records):
            time.sleep(pauses.uniform(0.3, 0.6))  # records that come one by one, to a query that is quiet
            seen.append(seen_after(query, producer))
        producer.close()
        query.stop()
        return {
            "requests": sum(kinds.values()) / took,
            "kinds": {k: round(n / took, 2) for k, n in kinds.items()},
            "cpu": 100 * cpu / took,
            "seen": seen,
        }


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--seconds", type=float, default=30, help="of quiet that are measured, a round")
    arguments.add_argument("--records", type=int, default=10, help="records that come one by one, a round")
    args = arguments.parse_args()
    spark = session(args.jars)
    report = Report("idle", "What does a query cost that has read everything (default trigger, 4 partitions)?")
    with KafkaCluster() as cluster:
        cluster.create_topic(TOPIC, partitions=4)
        cluster.produce(TOPIC, [b"first"])
        rounds: dict[str, list[dict[str, object]]] = {"kafka": [], "groupkafka": []}
        for _ in range(args.rounds):
            for source, done in rounds.items():
                done.append(measure(spark, cluster, source, args.seconds, args.records))
        goals = {"requests/s": 10, "% of a core": 3, "seen p50 ms": 20}
        for source, done in rounds.items():
            seen = percentiles([ms for one in done for ms in one["seen"]])  # type: ignore[attr-defined]
            cells = {
                "requests/s": statistics.median(one["requests"] for one in done),  # type: ignore[type-var]
                "% of a core": statistics.median(one["cpu"] for one in done),  # type: ignore[type-var]
                "seen p50 ms": seen[0],
                "seen p99 ms": seen[1],
            }
            report.row(source, cells, rounds=done)  # type: ignore[arg-type]
        for cell, most in goals.items():
            report.row(f"groupkafka, {cell}", {cell: cells[cell]}, Goal(cell, at_most=most))  # type: ignore[dict-item]
    spark.stop()


if __name__ == "__main__":
    main()
