"""The processor time of reads: groupkafka against Spark's own kafka source, in turns, on one broker, into one sink.

python benchmarks/cost.py --jars folder-of-jars      # or without --jars where --packages can download

Seconds on the clock depend on idle cores, and on waits at the ends of logs. Processor time is the bill of a busy
cluster. It is summed from /proc over Spark's JVM, its children and the broker; kernel time counts.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from common import Goal, Report, cpu_seconds, fill, in_turns, noop, parser, session
from partitions import EACH, fill_evenly
from pyspark.sql import SparkSession

from spark_kafka_group.testing import KafkaCluster
from spark_kafka_group.testing.node import wait_until

PARTITIONS = 4
SHARES = ("JVM", "children", "broker")
"""Of them, the children are those of the JVM: Python, and commands of Hadoop's."""
BATCHES = (
    # size, records, least ratio wanted with all columns, and with value and offset
    (100, 4_000_000, 1 / 0.38, 1 / 0.33),
    (1_000, 1_000_000, 1 / 0.42, 1 / 0.42),
)
STREAMS = (
    # partitions, micro-batches, records of each, least ratio wanted
    (4, 20, 100_000, 1 / 0.8),
    (4, 100, 1_000, 1 / 0.85),
    (1_000, 4, 10_000, 1 / 0.8),
)
IDLE_S = 20.0


class Cost(NamedTuple):
    """Seconds of processor time."""

    jvm: float
    children: float
    broker: float

    def __sub__(self, other: Cost) -> Cost:  # type: ignore[override]
        return Cost(*(a - b for a, b in zip(self, other, strict=True)))

    @property
    def total(self) -> float:
        """Of all three."""
        return sum(self)


class Meter:
    """Compares what sides cost, and adds the rows."""

    def __init__(self, spark: SparkSession, cluster: KafkaCluster, report: Report, rounds: int) -> None:
        node = cluster.nodes[0].process
        assert node is not None, "the broker runs"
        self._pids = spark.sparkContext._gateway.proc.pid, node.pid
        self._report = report
        self.rounds = rounds

    def now(self) -> Cost:
        """The cost so far."""
        jvm, broker = self._pids
        return Cost(*cpu_seconds(jvm), sum(cpu_seconds(broker)))

    def compare(
        self, case: str, unit: str, count: float, sides: Mapping[str, Callable[[], Any]], goal: float | None = None
    ) -> None:
        """Run both sides in turns, and add a row of their costs."""

        def cost_of(run: Callable[[], Any]) -> Cost:
            before = self.now()
            run()
            return self.now() - before

        self.row(
            case, unit, count, in_turns({name: partial(cost_of, run) for name, run in sides.items()}, self.rounds), goal
        )

    def row(
        self, case: str, unit: str, count: float, spent: Mapping[str, list[Cost]], goal: float | None = None
    ) -> None:
        """Add a row of medians, in seconds for each `unit`."""
        cells: dict[str, float | str] = {"for a": unit}
        totals = {name: statistics.median(cost.total for cost in rounds) / count for name, rounds in spent.items()}
        for name, rounds in spent.items():
            cells[f"{name} s"] = totals[name]
            for share, of_rounds in zip(SHARES, zip(*rounds, strict=True), strict=True):
                cells[f"{name} {share}"] = round(statistics.median(of_rounds) / count, 6)
        cells["ratio"] = totals["kafka"] / totals["groupkafka"]
        self._report.row(case, cells, None if goal is None else Goal("ratio", at_least=goal), spent=spent)


def batches(spark: SparkSession, cluster: KafkaCluster, meter: Meter, scale: float) -> None:
    """Batch reads of all columns, and of two."""
    wanted = ("value", "offset")
    for size, whole, of_all, of_two in BATCHES:
        records = max(1000, int(whole * scale))
        fill(cluster, f"b{size}", PARTITIONS, records, size)
        options = of(cluster, f"b{size}")
        kafka = spark.read.format("kafka").options(**options).load()
        ours = spark.read.format("groupkafka").options(**options).load()
        two = spark.read.format("groupkafka").options(**options, columns=",".join(wanted)).load()
        assert kafka.count() == ours.count() == records
        every = {"kafka": partial(noop, kafka), "groupkafka": partial(noop, ours)}
        meter.compare(f"batch, {size:,} B, all columns", "million records", records / 1e6, every, of_all)
        few = {"kafka": partial(noop, kafka.select(*wanted)), "groupkafka": partial(noop, two)}
        meter.compare(f"batch, {size:,} B, value and offset", "million records", records / 1e6, few, of_two)


def streams(spark: SparkSession, cluster: KafkaCluster, meter: Meter, scale: float) -> None:
    """Queries with availableNow: what they cost up to the end of their first micro-batch, and the others."""
    for partitions, count, per_batch, goal in STREAMS:
        number = max(3, int(count * scale))
        topic = f"s{per_batch}"
        if per_batch == EACH * partitions:
            fill_evenly(cluster, topic, partitions, number)
        else:
            fill(cluster, topic, PARTITIONS, number * per_batch, 100)
        options = of(cluster, topic)
        options["kafka.fetch.max.wait.ms"] = "10"  # or the kafka source waits at the ends of logs for minutes
        options["maxOffsetsPerTrigger"] = str(per_batch)
        sides = {name: partial(start_and_rest, spark, meter, name, options) for name in ("kafka", "groupkafka")}
        found = in_turns(sides, meter.rounds)
        case = f"{number} x {per_batch:,}, {partitions:,} partitions"
        first = {name: [cost for cost, _ in rounds] for name, rounds in found.items()}
        rest = {name: [cost for _, cost in rounds] for name, rounds in found.items()}
        meter.row(f"{case}: to the first", "query", 1, first)
        meter.row(f"{case}: others", "micro-batch", number - 1, rest, goal)


def start_and_rest(spark: SparkSession, meter: Meter, source: str, options: dict[str, str]) -> tuple[Cost, Cost]:
    """The cost of a query up to about the end of its first micro-batch, and from there to its end."""
    with tempfile.TemporaryDirectory() as directory:
        before = meter.now()
        writer = spark.readStream.format(source).options(**options).load().writeStream.format("noop")
        query = writer.option("checkpointLocation", directory).trigger(availableNow=True).start()
        wait_until(lambda: query.lastProgress is not None, within=120)
        first = meter.now()
        query.awaitTermination()
        return first - before, meter.now() - first


def idle(spark: SparkSession, cluster: KafkaCluster, meter: Meter, seconds: float) -> None:
    """Queries that have read everything; the default trigger asks every 10 ms."""
    fill(cluster, "quiet", PARTITIONS, 1000, 100)
    options = of(cluster, "quiet")

    def quiet(source: str) -> Cost:
        query = spark.readStream.format(source).options(**options).load().writeStream.format("noop").start()
        query.processAllAvailable()
        before = meter.now()
        time.sleep(seconds)  # the quiet that is measured
        cost = meter.now() - before
        query.stop()
        return cost

    spent = in_turns({source: partial(quiet, source) for source in ("kafka", "groupkafka")}, meter.rounds)
    meter.row("a query without new records", "minute", seconds / 60, spent)


def of(cluster: KafkaCluster, topic: str) -> dict[str, str]:
    """Options that read a topic from its start."""
    servers = cluster.bootstrap_servers
    return {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--scale", type=float, default=1.0, help="times the records of each case")
    args = arguments.parse_args()
    spark = session(args.jars)
    report = Report("cost", "How much processor time does it take (JVM, its children and the broker together)?")
    with KafkaCluster() as cluster:
        meter = Meter(spark, cluster, report, args.rounds)
        batches(spark, cluster, meter, args.scale)
        streams(spark, cluster, meter, args.scale)
        idle(spark, cluster, meter, IDLE_S * args.scale)
    spark.stop()


if __name__ == "__main__":
    main()
