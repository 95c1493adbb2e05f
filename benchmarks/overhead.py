"""What a micro-batch costs beyond its records: joining a generation, committing, and the task; and against Spark's own.

python benchmarks/overhead.py --jars folder-of-jars
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from common import fill, parser, report, session

from spark_kafka_group import GroupKafkaDataSource
from spark_kafka_group.driver.assignors import resolve
from spark_kafka_group.options import Options
from spark_kafka_group.testing import KafkaCluster
from spark_kafka_group.wire import GroupClient


def percentiles(values: list[float]) -> dict[str, float]:
    """Milliseconds: median, 95th and 99th percentile."""
    cut = statistics.quantiles(values, n=100)
    return {"p50": cut[49] * 1e3, "p95": cut[94] * 1e3, "p99": cut[98] * 1e3}


def membership(cluster: KafkaCluster, rounds: int) -> dict[str, dict[str, float]]:
    """A generation and a commit, as the driver does them for each batch, without Spark."""
    cluster.create_topic("membership", partitions=4)
    options = Options.parse({"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": "membership"})
    client = GroupClient(options, "membership", "bench", resolve(options.assignment_strategy))
    client.partitions(options.subscription)
    client.subscribe(options.subscription)
    tps = client.join().assignment
    took: dict[str, list[float]] = {"rejoin": [], "commit": [], "end offsets": []}
    for number in range(rounds):
        t0 = time.perf_counter()
        client.request_rejoin()
        generation = client.join()
        t1 = time.perf_counter()
        client.end_offsets(tps)
        t2 = time.perf_counter()
        client.commit(dict.fromkeys(tps, number), "", generation.id)
        t3 = time.perf_counter()
        for name, seconds in zip(took, (t1 - t0, t3 - t2, t2 - t1), strict=True):
            took[name].append(seconds)
    client.leave()
    client.close()
    return {name: percentiles(values) for name, values in took.items()}


def micro_batches(spark: object, source: str, settings: dict[str, str], per_batch: int) -> dict[str, float]:
    """Medians of Spark's own durations over the micro-batches of an availableNow query, the first three left out."""
    with tempfile.TemporaryDirectory() as directory:
        query = (
            spark.readStream.format(source)  # type: ignore[attr-defined]
            .options(**settings, maxOffsetsPerTrigger=str(per_batch))
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(Path(directory) / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        durations = [p.durationMs for p in query.recentProgress if p.numInputRows][3:]
    names = ("triggerExecution", "latestOffset", "queryPlanning", "addBatch", "walCommit", "commitOffsets")
    return {name: statistics.median(d.get(name, 0) for d in durations) for name in names}


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--batches", type=int, default=60)
    args = arguments.parse_args()
    spark = session(args.jars, **{"spark.sql.streaming.numRecentProgressUpdates": "1000"})
    spark.dataSource.register(GroupKafkaDataSource)
    results: dict[str, object] = {}
    with KafkaCluster() as cluster:
        results["membership"] = took = membership(cluster, 1000)
        print(f"{'milliseconds':<24}{'p50':>8}{'p95':>8}{'p99':>8}")
        for name, values in took.items():
            print(f"{name:<24}{values['p50']:>8.1f}{values['p95']:>8.1f}{values['p99']:>8.1f}")
        for per_batch in (1000, 100_000):
            topic = f"overhead-{per_batch}"
            fill(cluster, topic, 4, per_batch * args.batches, 100, "none")
            settings = {
                "kafka.bootstrap.servers": cluster.bootstrap_servers,
                "subscribe": topic,
                "startingOffsets": "earliest",
            }
            sides: dict[str, dict[str, float]] = {}
            for _ in range(2):  # the first round warms both sides up
                for source in ("kafka", "groupkafka"):
                    sides[source] = micro_batches(spark, source, settings, per_batch)
            results[topic] = sides
            print(f"\n{args.batches} micro-batches of {per_batch:,}: median ms{'kafka':>12}{'groupkafka':>12}")
            for name, theirs in sides["kafka"].items():
                print(f"  {name:<38}{theirs:>8.0f}{sides['groupkafka'][name]:>12.0f}")
            ratio = sides["kafka"]["triggerExecution"] / sides["groupkafka"]["triggerExecution"]
            print(f"  {'ratio (kafka / groupkafka)':<38}{ratio:>20.2f}x")
    report("overhead", results)
    spark.stop()


if __name__ == "__main__":
    main()
