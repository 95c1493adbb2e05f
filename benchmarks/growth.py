"""How cost grows: with records, their size, partitions, tasks and headers; and the driver's with partitions.

python benchmarks/growth.py --jars folder-of-jars      # or without --jars where --packages can download
"""

from __future__ import annotations

import json
import random
import statistics
import time
import uuid
from collections.abc import Callable, Iterable, Mapping

from common import Report, noop, parser, session
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from spark_kafka_group.assignors import resolve
from spark_kafka_group.driver import planner
from spark_kafka_group.driver.stream import StreamDriver
from spark_kafka_group.options import Options
from spark_kafka_group.testing import KafkaCluster
from spark_kafka_group.values.commit_metadata import commit_metadata
from spark_kafka_group.values.offsets import GroupOffset, OffsetRange, TopicPartition
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
RUN = 20
"""Records that go to one partition before the next one's turn."""
TO_THE_END = 16
"""Partitions with which reading to the ends of the logs is measured, too."""
DRIVERS = (1, 10, 100, 1_000)
MOST_MADE_AT_ONCE = 5_000
"""Kafka's controller refuses 10,000 partitions in one request."""
PAPER = (100, 1_000, 10_000)
"""Numbers of partitions for the driver's own work, with brokers and without."""

Series = dict[str, list[tuple[float, float]]]


def sources(
    spark: SparkSession, cluster: KafkaCluster, topic: str, ends: Mapping[int, int] | None = None, **options: str
) -> dict[str, DataFrame]:
    """The topic, or its partitions up to `ends`, read by each source."""
    options |= {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}
    if ends is not None:
        options["endingOffsets"] = json.dumps({topic: {str(partition): end for partition, end in ends.items()}})
    return {name: spark.read.format(name).options(**options).load() for name in ("kafka", "groupkafka")}


def beyond(size: int) -> int:
    """Records of a partition that follow those that are read.

    The peer's consumer asks for more when it has given out what it had, and its next request waits behind that one: at
    the end of a log for `fetch.max.wait.ms`, in every task. So that curves show what grows and not this, logs go on for
    more than it has in its hands: 500 records, or what one answer holds.
    """
    return max(1, min(1_000, 3_000_000 // size))


def fill_evenly(
    cluster: KafkaCluster, topic: str, partitions: int, records: int, size: int = 100, headers: int = 0
) -> dict[int, int]:
    """So many records in each partition, and some more; returns the ends of those that are to be read.

    Record batches are as large as those of Java's producer by default.
    """
    cluster.create_topic(topic, partitions=partitions)
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "linger.ms": 20,
            "batch.size": 16_384,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    pairs = [(f"header-{number}", b"4bf92f3577b34da6a3ce929d0e0e4736") for number in range(headers)]
    value = random.Random(size).randbytes(size)
    for number in range(partitions * (records + beyond(size))):
        while True:
            try:
                # A few in a row for each partition, so that batches are filled whatever the number of partitions.
                producer.produce(topic, value, partition=number // RUN % partitions, headers=pairs)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()
    return dict.fromkeys(range(partitions), records)


class Curve:
    """One curve of both sides: seconds, or a rate, over the growing quantity."""

    def __init__(self, report: Report, rounds: int, title: str, x: str, y: str) -> None:
        self._report = report
        self._rounds = rounds
        self._title, self._x, self._y = title, x, y
        self.series: Series = {}

    def point(self, at: float, frames: Mapping[str, DataFrame], amount: float | None = None, unit: str = "s") -> None:
        """Measure both sides at one place; with an `amount`, what they do of it in a second."""
        medians = self._report.compare(
            f"{self._title.partition(',')[0]}: {at:,} {self._x}",
            {name: (lambda df=df: noop(df)) for name, df in frames.items()},
            self._rounds,
            per=None if amount is None else (unit, amount),
        )
        for name, seconds in medians.items():
            self.series.setdefault(name, []).append((at, seconds if amount is None else amount / seconds))

    def save(self) -> None:
        self._report.curve(self._title, self._x, self._y, self.series)


def over_records(report: Report, spark: SparkSession, cluster: KafkaCluster, rounds: int, scale: float) -> None:
    """The same topic, more and more of it."""
    fill_evenly(cluster, "records", 4, int(max(RECORDS) * scale) // 4)
    curve = Curve(report, rounds, "Records of 100 B, 4 partitions", "records", "seconds")
    for records in RECORDS:
        records = int(records * scale)
        curve.point(records, sources(spark, cluster, "records", dict.fromkeys(range(4), records // 4)))
    curve.save()


def over_sizes(report: Report, spark: SparkSession, cluster: KafkaCluster, rounds: int, scale: float) -> None:
    """The same bytes in fewer and fewer records."""
    rates: Series = {}
    curve = Curve(report, rounds, "Size of a record, 50 MB in all", "bytes", "MB/s")
    for size in SIZES:
        each = max(1, int(BYTES * scale) // size // 4)
        ends = fill_evenly(cluster, f"size-{size}", 4, each, size)
        curve.point(size, sources(spark, cluster, f"size-{size}", ends), each * 4 * size, "bytes")
    for name, points in curve.series.items():
        rates[name] = [(size, rate / size) for size, rate in points]
        curve.series[name] = [(size, rate / 1e6) for size, rate in points]
    curve.save()
    report.curve("Size of a record, 50 MB in all: records", "bytes", "records/s", rates)


def over_partitions(report: Report, spark: SparkSession, cluster: KafkaCluster, rounds: int, scale: float) -> None:
    """The same records in more and more partitions."""
    curve = Curve(report, rounds, "Partitions, 1 M records of 100 B in all", "partitions", "seconds")
    for partitions in PARTITIONS:
        topic, each = f"partitions-{partitions}", max(1, int(OF_PARTITIONS * scale) // partitions)
        ends = fill_evenly(cluster, topic, partitions, each)
        curve.point(partitions, sources(spark, cluster, topic, ends))
        if partitions == TO_THE_END:
            whole = {name: (lambda df=df: noop(df)) for name, df in sources(spark, cluster, topic).items()}
            report.compare(f"Partitions: {partitions}, to the logs' end", whole, rounds)
    curve.save()


def over_tasks(report: Report, spark: SparkSession, cluster: KafkaCluster, rounds: int, scale: float) -> None:
    """One partition, cut into more and more tasks."""
    ends = fill_evenly(cluster, "tasks", 1, int(OF_TASKS * scale))
    curve = Curve(report, rounds, "Tasks (minPartitions), 2 M records of 100 B in one partition", "tasks", "seconds")
    for tasks in TASKS:
        frames = sources(spark, cluster, "tasks", ends, minPartitions=str(tasks))
        found = {name: df.rdd.getNumPartitions() for name, df in frames.items()}
        assert set(found.values()) == {tasks}, found
        curve.point(tasks, frames)
    curve.save()


def over_headers(report: Report, spark: SparkSession, cluster: KafkaCluster, rounds: int, scale: float) -> None:
    """The same records with more and more headers."""
    each = int(OF_HEADERS * scale) // 4
    curve = Curve(report, rounds, "Headers of 32 B, 250 k records of 100 B", "headers", "records/s")
    for headers in HEADERS:
        ends = fill_evenly(cluster, f"headers-{headers}", 4, each, headers=headers)
        frames = sources(spark, cluster, f"headers-{headers}", ends, includeHeaders="true")
        curve.point(headers, frames, each * 4, "rows")
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
    """The driver's computation for one micro-batch, without a broker."""
    series: Series = {}
    for count in PAPER:
        tps = [TopicPartition("orders", number) for number in range(count)]
        ranges = [OffsetRange(tp, 1_000_000, 1_001_000) for tp in tps]
        offset = GroupOffset(dict.fromkeys(tps, 1_001_000), uuid.uuid4().hex, 7, 3, {"orders": str(uuid.uuid4())})
        before = GroupOffset(dict.fromkeys(tps, 1_000_000), offset.query_id, 6, 2, offset.topic_ids)
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
            "commit kB": count * (4 + 8 + 4 + 2 + len(commit_metadata(str(offset.query_id), 7, 3)) + 1) / 1e3,
        }
        report.row(f"driver's values, {count:,} partitions", cells)
        for name, value in cells.items():
            if name.endswith("ms"):
                series.setdefault(name.removesuffix(" ms"), []).append((count, value))
    report.curve("The driver's own work for a micro-batch", "partitions", "ms", series)


def on_a_broker(report: Report, cluster: KafkaCluster, counts: Iterable[int]) -> None:
    """The driver's requests to brokers, and a whole trigger: planning a batch, and committing it at the next one."""
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
        client = GroupClient(parsed, f"pieces-{count}", "bench", resolve(parsed.group.assignment_strategy))
        tps = client.partitions(parsed.reading.subscription)
        client.subscribe(parsed.reading.subscription)
        generation = client.join()
        note = commit_metadata(uuid.uuid4().hex, generation.id, 1)

        def rejoin(client: GroupClient = client) -> None:
            client.request_rejoin()
            client.join()

        def commit(client: GroupClient = client, tps: set[TopicPartition] = tps, note: str = note) -> None:
            client.commit(dict.fromkeys(tps, 1), note, client.current().id)

        cells = {
            "metadata ms": milliseconds(lambda c=client, p=parsed: c.partitions(p.reading.subscription)),
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
            triggers: dict[str, list[float]] = {"trigger": [], "report": [], "plan": []}
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
                assert end != offset
                offset = end
                send()
                if number:
                    for name, ms in zip(triggers, (t1 - t0 + t4 - t3, t2 - t1, t3 - t2), strict=True):
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


if __name__ == "__main__":
    main()
