"""How cost grows: with records, their size, partitions, tasks and headers; and the driver's with partitions.

python benchmarks/growth.py --jars folder-of-jars      # or without --jars where --packages can download
"""

from __future__ import annotations

import json
import statistics
import time
import uuid
from collections.abc import Callable, Iterable, Mapping

from common import Report, fill, noop, parser, session
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from spark_kafka_group.driver import planner
from spark_kafka_group.driver.assignors import resolve
from spark_kafka_group.driver.stream import StreamDriver
from spark_kafka_group.notes import commit_note
from spark_kafka_group.offsets import GroupOffset, OffsetRange, TopicPartition
from spark_kafka_group.options import Options
from spark_kafka_group.testing import KafkaCluster
from spark_kafka_group.wire import GroupClient

RECORDS = (10_000, 100_000, 1_000_000, 10_000_000)
SIZES = (10, 100, 1_000, 10_000, 100_000)
PARTITIONS = (1, 4, 16, 64, 256, 1_000)
TASKS = (1, 2, 4, 8, 16, 64)
HEADERS = (0, 1, 2, 4, 8, 16)
BYTES = 50_000_000
"""Of all records of one size."""
OF_PARTITIONS, OF_TASKS, OF_HEADERS = 1_000_000, 2_000_000, 250_000
"""Records of 100 bytes behind each of these curves."""
DRIVERS = (1, 10, 100, 1_000)
MOST_MADE_AT_ONCE = 5_000
"""Kafka's controller refuses 10,000 partitions in one request."""
PAPER = (100, 1_000, 10_000)
"""Partitions of which the driver's own work is measured, with brokers and without."""

Series = dict[str, list[tuple[float, float]]]


def sources(
    spark: SparkSession, cluster: KafkaCluster, topic: str, ends: Mapping[int, int] | None = None, **options: str
) -> dict[str, DataFrame]:
    """The topic, or its partitions up to `ends`, read by each source."""
    options |= {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}
    if ends is not None:
        options["endingOffsets"] = json.dumps({topic: {str(partition): end for partition, end in ends.items()}})
    return {name: spark.read.format(name).options(**options).load() for name in ("kafka", "groupkafka")}


def fill_with_headers(cluster: KafkaCluster, topic: str, records: int, headers: int) -> None:
    """Values of 100 bytes, each with so many headers of 32 bytes."""
    cluster.create_topic(topic, partitions=4)
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
    )
    pairs = [(f"header-{number}", b"4bf92f3577b34da6a3ce929d0e0e4736") for number in range(headers)]
    for number in range(records):
        producer.produce(topic, bytes(range(100)), partition=number % 4, headers=pairs)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()


class Curve:
    """One curve of both sides: seconds, or a rate, over what grows."""

    def __init__(self, report: Report, rounds: int, title: str, x: str, y: str) -> None:
        self._report = report
        self._rounds = rounds
        self._title, self._x, self._y = title, x, y
        self._series: Series = {}

    def point(self, at: float, frames: Mapping[str, DataFrame], amount: float | None = None, unit: str = "s") -> None:
        """Measure both sides at one place; with an `amount`, what they do of it in a second."""
        medians = self._report.compare(
            f"{self._title.partition(',')[0]}: {at:,} {self._x}",
            {name: (lambda df=df: noop(df)) for name, df in frames.items()},
            self._rounds,
            per=None if amount is None else (unit, amount),
        )
        for name, seconds in medians.items():
            self._series.setdefault(name, []).append((at, seconds if amount is None else amount / seconds))

    def save(self) -> None:
        self._report.curve(self._title, self._x, self._y, self._series)


def over_records(report: Report, spark: SparkSession, cluster: KafkaCluster, rounds: int, scale: float) -> None:
    """The same topic, more and more of it."""
    most = int(max(RECORDS) * scale)
    fill(cluster, "records", 4, most, 100)
    counts = {row["partition"]: row["count"] for row in _counts(spark, cluster, "records")}
    curve = Curve(report, rounds, "Records of 100 B, 4 partitions", "records", "seconds")
    for records in RECORDS:
        records = int(records * scale)
        # The producer's partitions are not quite equal, so the same share is taken of each.
        ends = {partition: count * records // most for partition, count in counts.items()}
        curve.point(records, sources(spark, cluster, "records", ends))
    curve.save()


def _counts(spark: SparkSession, cluster: KafkaCluster, topic: str) -> Iterable:
    return sources(spark, cluster, topic)["groupkafka"].groupBy("partition").count().collect()


def over_sizes(report: Report, spark: SparkSession, cluster: KafkaCluster, rounds: int, scale: float) -> None:
    """The same bytes in fewer and fewer records."""
    series: Series = {}
    curve = Curve(report, rounds, "Size of a record, 50 MB in all", "bytes", "MB/s")
    for size in SIZES:
        records = max(4, int(BYTES * scale) // size)
        fill(cluster, f"size-{size}", 4, records, size)
        curve.point(size, sources(spark, cluster, f"size-{size}"), records * size, "bytes")
    for name, points in curve._series.items():
        series[name] = [(size, rate / size) for size, rate in points]
        curve._series[name] = [(size, rate / 1e6) for size, rate in points]
    curve.save()
    report.curve("Size of a record, 50 MB in all: records", "bytes", "records/s", series)


def over_partitions(report: Report, spark: SparkSession, cluster: KafkaCluster, rounds: int, scale: float) -> None:
    """The same records in more and more partitions."""
    curve = Curve(report, rounds, "Partitions, 1 M records of 100 B in all", "partitions", "seconds")
    for partitions in PARTITIONS:
        partitions = max(1, int(partitions * min(1.0, scale * 10)))
        topic = f"partitions-{partitions}-{uuid.uuid4().hex[:6]}"
        fill(cluster, topic, partitions, int(OF_PARTITIONS * scale), 100)
        curve.point(partitions, sources(spark, cluster, topic))
    curve.save()


def over_tasks(report: Report, spark: SparkSession, cluster: KafkaCluster, rounds: int, scale: float) -> None:
    """One partition, cut into more and more tasks."""
    records = int(OF_TASKS * scale)
    fill(cluster, "tasks", 1, records, 100)
    curve = Curve(report, rounds, "Tasks (minPartitions), 2 M records of 100 B in one partition", "tasks", "seconds")
    for tasks in TASKS:
        frames = sources(spark, cluster, "tasks", minPartitions=str(tasks))
        found = {name: df.rdd.getNumPartitions() for name, df in frames.items()}
        assert set(found.values()) == {tasks}, found
        curve.point(tasks, frames)
    curve.save()


def over_headers(report: Report, spark: SparkSession, cluster: KafkaCluster, rounds: int, scale: float) -> None:
    """The same records with more and more headers."""
    records = max(1000, int(OF_HEADERS * scale))
    curve = Curve(report, rounds, "Headers of 32 B, 250 k records of 100 B", "headers", "records/s")
    for headers in HEADERS:
        fill_with_headers(cluster, f"headers-{headers}", records, headers)
        frames = sources(spark, cluster, f"headers-{headers}", includeHeaders="true")
        curve.point(headers, frames, records, "rows")
    curve.save()


# The driver, without Spark


def milliseconds(call: Callable[[], object], rounds: int = 7) -> float:
    """Median of some calls after one to warm up."""
    times = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        call()
        times.append((time.perf_counter() - began) * 1e3)
    return statistics.median(times[1:])


def on_paper(report: Report) -> None:
    """What the driver computes for one micro-batch, without a broker."""
    series: Series = {}
    for count in PAPER:
        tps = [TopicPartition("orders", number) for number in range(count)]
        ranges = [OffsetRange(tp, 1_000_000, 1_001_000) for tp in tps]
        offset = GroupOffset(dict.fromkeys(tps, 1_001_000), uuid.uuid4().hex, 7, 3, {"orders": str(uuid.uuid4())})
        before = GroupOffset(dict.fromkeys(tps, 1_000_000), offset.reader, 6, 2, offset.topic_ids)
        text = json.dumps(offset.to_json())
        parsed = Options.parse({"kafka.bootstrap.servers": "broker:9092", "subscribe": "orders"})
        slots = planner.tasks(ranges, parsed, {})[1]
        cells = {
            "to JSON ms": milliseconds(lambda o=offset: json.dumps(o.to_json())),
            "from JSON ms": milliseconds(lambda t=text: GroupOffset.from_json(json.loads(t))),
            "ranges ms": milliseconds(lambda o=offset, b=before: o.ranges(b)),
            "share ms": milliseconds(lambda r=ranges, most=count * 500: planner.share(r, most, 0)),
            "tasks ms": milliseconds(lambda r=ranges, p=parsed, s=slots: planner.tasks(r, p, s)),
            "offset kB": len(text) / 1e3,
            "commit kB": count * (4 + 8 + 4 + 2 + len(commit_note(str(offset.reader), 7, 3)) + 1) / 1e3,
        }
        report.row(f"driver's values, {count:,} partitions", cells)
        for name, value in cells.items():
            if name.endswith("ms"):
                series.setdefault(name.removesuffix(" ms"), []).append((count, value))
    report.curve("The driver's own work for a micro-batch", "partitions", "ms", series)


def on_a_broker(report: Report, cluster: KafkaCluster, counts: Iterable[int]) -> None:
    """What it asks of the brokers, and a whole trigger with data and without."""
    series: Series = {}
    for count in counts:
        topic = f"driver-{count}"
        began = time.perf_counter()
        cluster.create_topic(topic, partitions=min(count, MOST_MADE_AT_ONCE))
        if count > MOST_MADE_AT_ONCE:
            cluster.add_partitions(topic, count)
        print(f"(topic of {count:,} partitions made in {time.perf_counter() - began:.1f} s)")
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})

        def send(producer: Producer = producer, topic: str = topic, count: int = count) -> None:
            """A record into each partition."""
            for partition in range(count):
                producer.produce(topic, b"x" * 100, partition=partition)
            producer.flush()

        parsed = Options.parse(
            {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}
        )
        client = GroupClient(parsed, f"pieces-{count}", "bench", resolve(parsed.assignment_strategy))
        tps = client.partitions(parsed.subscription)
        client.subscribe(parsed.subscription)
        generation = client.join()
        note = commit_note(uuid.uuid4().hex, generation.id, 1)

        def rejoin(client: GroupClient = client) -> None:
            client.request_rejoin()
            client.join()

        def commit(client: GroupClient = client, tps: set[TopicPartition] = tps, note: str = note) -> None:
            client.commit(dict.fromkeys(tps, 1), note, client.current().id)

        cells = {
            "metadata ms": milliseconds(lambda c=client, p=parsed: c.partitions(p.subscription)),
            "ends ms": milliseconds(lambda c=client, t=tps: c.end_offsets(t)),
            "rejoin ms": milliseconds(rejoin),
            "commit ms": milliseconds(commit),
            "committed ms": milliseconds(lambda c=client, t=tps: c.committed(t)),
        }
        client.leave()
        client.close()
        driver = StreamDriver(parsed)
        try:
            send()
            offset = driver.initial_offset()
            triggers: dict[str, list[float]] = {"trigger": [], "report": [], "plan": [], "idle trigger": []}
            for number in range(8):
                t0 = time.perf_counter()
                end = driver.latest_offset(offset)
                t1 = time.perf_counter()
                driver.report_latest_offset()
                t2 = time.perf_counter()
                driver.plan(offset, end)
                t3 = time.perf_counter()
                driver.latest_offset(end)  # commits, and finds nothing
                t4 = time.perf_counter()
                driver.latest_offset(end)
                t5 = time.perf_counter()
                assert end != offset
                offset = end
                send()
                if number:
                    for name, ms in zip(
                        triggers, (t1 - t0 + t4 - t3 - (t5 - t4), t2 - t1, t3 - t2, t5 - t4), strict=True
                    ):
                        triggers[name].append(ms * 1e3)
        finally:
            driver.stop()
        cells |= {f"{name} ms": statistics.median(values) for name, values in triggers.items()}
        report.row(f"driver and broker, {count:,} partitions", cells)
        for name, value in cells.items():
            series.setdefault(name.removesuffix(" ms"), []).append((count, value))
    report.curve("What a micro-batch asks of a broker", "partitions", "ms", series)


SWEEPS = {
    "records": over_records,
    "sizes": over_sizes,
    "partitions": over_partitions,
    "tasks": over_tasks,
    "headers": over_headers,
}


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.set_defaults(rounds=3)
    arguments.add_argument("--scale", type=float, default=1.0, help="times the records of each case")
    arguments.add_argument("--only", nargs="*", choices=[*SWEEPS, "driver"], help="these curves instead of all")
    arguments.add_argument("--driver", type=int, nargs="*", default=DRIVERS, help="partitions, of the driver's curve")
    args = arguments.parse_args()
    chosen = args.only or [*SWEEPS, "driver"]
    report = Report("growth", "How does the cost of a read grow?")
    with KafkaCluster() as cluster:
        if "driver" in chosen:
            on_paper(report)
            on_a_broker(report, cluster, args.driver)
        sweeps = [sweep for name, sweep in SWEEPS.items() if name in chosen]
        if sweeps:
            spark = session(args.jars)
            for sweep in sweeps:
                sweep(report, spark, cluster, args.rounds, args.scale)
            spark.stop()
    report.save()


if __name__ == "__main__":
    main()
