"""The cost of a generation per micro-batch: by itself, in a Spark trigger, and for other members of the group.

python benchmarks/generations.py      # needs no jars: all sides are groupkafka's
"""

from __future__ import annotations

import contextlib
import json
import statistics
import tempfile
import time
import uuid

from actors import Actor, acting, consume, run_query, send_evenly
from common import Goal, Report, fill, parser, percentiles, session
from pyspark.sql import SparkSession

from spark_kafka_group.assignors import resolve
from spark_kafka_group.options import Options
from spark_kafka_group.testing import KafkaCluster
from spark_kafka_group.testing.node import wait_until
from spark_kafka_group.values.offsets import GROUP_KEY
from spark_kafka_group.wire import GroupClient

FIRST = 5
"""Micro-batches of a query that are not counted: connections are made, code is compiled."""
TRIGGER_S, BATCH_S = 0.1, 0.05
PARTITIONS = 12
PER_SECOND = 2_000


def latencies(seconds: list[float]) -> dict[str, float]:
    """Cells of a row."""
    p50, p99 = percentiles(seconds)
    return {"p50 ms": p50 * 1e3, "p99 ms": p99 * 1e3}


def by_itself(report: Report, cluster: KafkaCluster, rounds: int) -> None:
    """A generation and a commit as the driver does them for each batch, one after the other, without Spark."""
    cluster.create_topic("by-itself", partitions=4)
    options = Options.parse({"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": "by-itself"})
    client = GroupClient(options, "by-itself", "bench", resolve(options.group.assignment_strategy))
    client.partitions(options.reading.subscription)
    client.subscribe(options.reading.subscription)
    tps = client.join().assignment
    took: dict[str, list[float]] = {"rejoin and commit": [], "rejoin": [], "commit": [], "end offsets": []}
    for number in range(rounds):
        t0 = time.perf_counter()
        client.request_rejoin()
        generation = client.join()
        t1 = time.perf_counter()
        client.commit(dict.fromkeys(tps, number), "", generation.id)
        t2 = time.perf_counter()
        client.end_offsets(tps)
        t3 = time.perf_counter()
        for name, seconds in zip(took, (t2 - t0, t1 - t0, t2 - t1, t3 - t2), strict=True):
            took[name].append(seconds)
    client.leave()
    client.close()
    together = latencies(took["rejoin and commit"])
    report.row("rejoin and commit", together, Goal("p50 ms", at_most=5), seconds=took["rejoin and commit"])
    report.row("rejoin and commit, the slowest", together, Goal("p99 ms", at_most=30))
    for name in ("rejoin", "commit", "end offsets"):
        report.row(name, latencies(took[name]), seconds=took[name])


def batches_of(spark: SparkSession, cluster: KafkaCluster, topic: str, generation: str) -> list[dict[str, float]]:
    """Milliseconds of each micro-batch of 1,000 records of a query that reads all there is."""
    with tempfile.TemporaryDirectory() as directory:
        query = (
            spark.readStream.format("groupkafka")
            .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
            .option("kafka.group.id", f"share-{uuid.uuid4().hex}")
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "1000")
            .option("generation", generation)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", directory)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        error = query.exception()
        if error is not None:
            raise error
        progresses = [p for p in query.recentProgress if p.numInputRows]
    batches = []
    before = {"join": 0.0, "sync": 0.0}
    for progress in progresses:
        # The progress is of the moment when this batch had been planned: the commit is that of the batch before.
        told = json.loads(progress.sources[0].latestOffset)[GROUP_KEY]
        batch = {name: float(ms) for name, ms in progress.durationMs.items()}
        batch["commit"] = told["commitLatencyMs"]
        for request in ("join", "sync"):
            # An average of all, as long as the query is younger than the two windows that it looks at.
            total = (told[f"{request}TimeAvgMs"] or 0.0) * told[f"{request}s"]
            batch[request] = total - before[request]
            before[request] = total
        batches.append(batch)
    return batches[FIRST:]


def in_a_trigger(report: Report, spark: SparkSession, cluster: KafkaCluster, batches: int, rounds: int) -> None:
    """The share of a trigger, and the same query without a generation for each batch, in turns."""
    fill(cluster, "share", 4, (batches + FIRST) * 1000, 100)
    measured: dict[str, list[dict[str, float]]] = {"auto": [], "stable": []}
    for number in range(rounds + 1):
        for generation, found in measured.items():
            told = batches_of(spark, cluster, "share", generation)
            if number:
                found += told
    for generation, found in measured.items():
        parts = {
            "join ms": statistics.median(b["join"] + b["sync"] for b in found),
            "commit ms": statistics.median(b["commit"] for b in found),
            "latestOffset ms": statistics.median(b["latestOffset"] for b in found),
            "trigger ms": statistics.median(b["triggerExecution"] for b in found),
            "share %": 100
            * statistics.median((b["join"] + b["sync"] + b["commit"]) / b["triggerExecution"] for b in found),
        }
        report.row(f"trigger, 1,000 records, {generation}", parts, batches=found)


def with_others(report: Report, cluster: KafkaCluster, queries: int, generation: str, strategy: str, s: float) -> None:
    """`queries` drivers, and if they are several an ordinary consumer besides, in one group."""
    group = f"others-{uuid.uuid4().hex}"
    options = {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "kafka.group.id": group,
        "subscribe": "others",
        "generation": generation,
        "kafka.partition.assignment.strategy": strategy,
    }
    with contextlib.ExitStack() as stack:
        members = []
        for _ in range(queries):  # one after the other, so that the first one leads
            members.append(stack.enter_context(acting(run_query, options, TRIGGER_S, BATCH_S)))
        neighbour: Actor | None = None
        if queries > 1:
            neighbour = stack.enter_context(acting(consume, cluster.bootstrap_servers, "others", group, strategy))
        wait_until(lambda: len(cluster.group_state(group)[1]) == queries + (neighbour is not None), within=60)
        time.sleep(2)  # what joining has left behind is read
        began = time.monotonic()
        time.sleep(s)
        ended = time.monotonic()
        told = neighbour.end() if neighbour is not None else None
        batches = [member.end() for member in members]
    planned = [took for b in batches for took in b.within(began, ended)]
    cells = {"batches/s": len(planned) / queries / s} | latencies(planned)
    cells["longest ms"] = 1e3 * max(planned)
    if told is not None:
        cells |= {
            "rebalances/s": told.rebalances(began, ended) / s,
            "without %": 100 * told.without(began, ended) / s,
            "longest pause s": told.longest_pause(began, ended),
        }
    name = f"{queries} {'query' if queries == 1 else 'queries, 1 consumer'}, {generation}"
    report.row(name if strategy == "range" else f"{name}, {strategy}", cells, planned=planned)


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--generations", type=int, default=1000, help="rejoins and commits without Spark")
    arguments.add_argument("--batches", type=int, default=120, help="micro-batches of each Spark query")
    arguments.add_argument("--seconds", type=float, default=20.0, help="of each case with several members")
    arguments.set_defaults(rounds=2)
    args = arguments.parse_args()
    report = Report("generations", "What does a generation of the group for each micro-batch cost?")
    with KafkaCluster() as cluster:
        by_itself(report, cluster, args.generations)
        cluster.create_topic("others", partitions=PARTITIONS)
        with acting(send_evenly, cluster.bootstrap_servers, "others", PARTITIONS, PER_SECOND):
            for queries, generation, strategy in (
                (1, "stable", "range"),
                (1, "auto", "range"),
                (3, "stable", "range"),
                (3, "auto", "range"),
                (3, "batch", "range"),
                (3, "batch", "cooperative-sticky"),
            ):
                with_others(report, cluster, queries, generation, strategy, args.seconds)
        spark = session(args.jars, **{} if args.jars else {"spark.jars.packages": ""})  # all sides are groupkafka's
        in_a_trigger(report, spark, cluster, args.batches, args.rounds)
    spark.stop()


if __name__ == "__main__":
    main()
