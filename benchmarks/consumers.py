"""One thread that consumes a topic: the executor's path against Kafka's consumers in Java, C and Python.

python benchmarks/consumers.py
"""

from __future__ import annotations

import asyncio
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from unittest import mock

from common import Goal, Report, fill, parser, seconds
from kafka import KafkaConsumer
from kafka.structs import TopicPartition as KafkaTopicPartition

from spark_kafka_group.executor.reading.batch_headers import Chunk
from spark_kafka_group.executor.reading.fetcher import Fetcher
from spark_kafka_group.executor.reading.read import read
from spark_kafka_group.options import Options
from spark_kafka_group.testing import KafkaCluster
from spark_kafka_group.values.offsets import OffsetRange, ReadTask, TopicPartition

CASES = (
    # bytes of a record, codec, records, least times ConsumerPerformance
    (100, "none", 5_000_000, 4.0),
    (100, "lz4", 5_000_000, None),
    (1_000, "none", 1_000_000, 2.0),
)
LESS = 20
"""Clients that make a Python object of each record read so many times fewer."""
FRESH = """
import json, sys, time
from spark_kafka_group.executor.reading.read import read
from spark_kafka_group.values.offsets import OffsetRange, TopicPartition
from spark_kafka_group.options import Options
from spark_kafka_group.values.offsets import ReadTask
settings, topic, records = json.loads(sys.argv[1])
began = time.perf_counter()
task = ReadTask((OffsetRange(TopicPartition(topic, 0), 0, records),))
assert sum(batch.num_rows for batch in read(task, Options.parse(settings))) == records
print(time.perf_counter() - began)
"""


def settings(cluster: KafkaCluster, topic: str) -> dict[str, str]:
    """Of the source; it fetches Kafka's default size, as all others do."""
    return {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic}


def ours(cluster: KafkaCluster, topic: str, records: int) -> float:
    """Seconds to read so many records to Arrow, with the connection of the last time."""
    options = Options.parse(settings(cluster, topic))
    task = ReadTask((OffsetRange(TopicPartition(topic, 0), 0, records),))

    def drain() -> None:
        rows = sum(batch.num_rows for batch in read(task, options))
        assert rows == records, rows

    return seconds(drain)


class AskingLate(Fetcher):
    """Without read-ahead: a request is sent when the rows of the response before are gone."""

    _late = False

    def _next_response(self) -> list[Chunk]:
        self._late = True
        try:
            return super()._next_response()
        finally:
            self._late = False

    def _send(self, node_id: int) -> None:
        if not self._late:
            super()._send(node_id)


def asking_late(cluster: KafkaCluster, topic: str, records: int) -> float:
    """As :func:`ours`, without read-ahead."""
    with mock.patch("spark_kafka_group.executor.reading.read.Fetcher", AskingLate):
        return ours(cluster, topic, records)


def ours_fresh(cluster: KafkaCluster, topic: str, records: int) -> float:
    """The same in a process that has neither read nor connected before; its imports are left out."""
    arguments = json.dumps([settings(cluster, topic), topic, records])
    return float(subprocess.run([sys.executable, "-c", FRESH, arguments], capture_output=True, check=True).stdout)


def java(cluster: KafkaCluster, topic: str, records: int) -> float:
    """ConsumerPerformance's own fetch time: from the end of the first rebalance to the last record.

    It polls and counts: CRC checks and a ConsumerRecord with byte arrays for each record, no deserialization. The JVM's
    start and the group's rebalance are not in it; the JVM is as cold as after any start.
    """
    group = f"performance-{time.monotonic_ns()}"
    told = cluster.run_tool(
        "org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server", cluster.bootstrap_servers,
        "--topic", topic, "--num-records", str(records), "--group", group, "--timeout", "60000",
    )  # fmt: skip
    head, *_, row = [line for line in told.splitlines() if line.count(",") >= 9]
    cells = dict(
        zip((name.strip() for name in head.split(",")), (cell.strip() for cell in row.split(",")), strict=True)
    )
    assert int(cells["data.consumed.in.nMsg"]) >= records, told
    return records / float(cells["fetch.nMsg.sec"])


def confluent(cluster: KafkaCluster, topic: str, records: int) -> float:
    """librdkafka's consume() in batches of 10,000: time from the first batch to the last."""
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "confluent", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    try:
        return _timed(lambda: len(consumer.consume(10_000, timeout=10)), records)
    finally:
        consumer.close()


def kafka_python(cluster: KafkaCluster, topic: str, records: int) -> float:
    """kafka-python's poll(), up to 10,000 records at a time."""
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, enable_auto_commit=False)
    tp = KafkaTopicPartition(topic, 0)
    consumer.assign([tp])
    consumer.seek(tp, 0)
    try:
        return _timed(lambda: sum(map(len, consumer.poll(10_000, max_records=10_000).values())), records)
    finally:
        consumer.close(autocommit=False)


def aiokafka(cluster: KafkaCluster, topic: str, records: int) -> float:
    """aiokafka's getmany(), up to 10,000 records at a time."""
    import aiokafka

    async def consume() -> float:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, enable_auto_commit=False)
        await consumer.start()
        tp = aiokafka.TopicPartition(topic, 0)
        consumer.assign([tp])
        consumer.seek(tp, 0)
        try:
            began, seen = 0.0, 0
            while seen < records:
                found = await consumer.getmany(timeout_ms=10_000, max_records=10_000)
                assert found, "no record in 10 s"
                if not began:
                    began = time.perf_counter()
                    records_of_first = sum(map(len, found.values()))
                seen += sum(map(len, found.values()))
            return (time.perf_counter() - began) * records / (seen - records_of_first)
        finally:
            await consumer.stop()

    return asyncio.run(consume())


def _timed(poll: Callable[[], int], records: int) -> float:
    """Seconds for `records`, counted from the first records that a poll gives: connecting is left out."""
    first = poll()
    assert first, "no record in 10 s"
    began, seen = time.perf_counter(), first
    while seen < records:
        found = poll()
        assert found, "no record in 10 s"
        seen += found
    return (time.perf_counter() - began) * records / (seen - first)


def cpu_s() -> float:
    """Seconds of processor time of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


CLIENTS: dict[str, tuple[Callable[[KafkaCluster, str, int], float], int]] = {
    "groupkafka": (ours, 1),
    "asking late": (asking_late, 1),
    "fresh": (ours_fresh, 1),
    "Java": (java, 1),
    "confluent": (confluent, 5),
    "aiokafka": (aiokafka, LESS),
    "kafka-python": (kafka_python, LESS),
}


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--scale", type=float, default=1.0, help="times the records of each case")
    args = arguments.parse_args()
    report = Report("consumers", "How many records a second does one thread consume (1 partition, M records/s)?")
    with KafkaCluster() as cluster:
        for size, codec, whole, goal in CASES:
            topic, records = f"c{size}-{codec}", max(200_000, int(whole * args.scale))
            fill(cluster, topic, 1, records, size, codec)
            rates: dict[str, list[float]] = {name: [] for name in CLIENTS}
            cpu: list[float] = []
            for number in range(args.rounds + 1):  # one to warm up
                for name, (consume, less) in CLIENTS.items():
                    before, count = cpu_s(), records // less
                    taken = consume(cluster, topic, count)
                    if number:
                        rates[name].append(count / taken / 1e6)
                        if consume is ours:
                            cpu.append((cpu_s() - before) / count * 1e6)
            cells = {name: statistics.median(values) for name, values in rates.items()}
            case, rate = f"{size:,} B, {codec}", cells["groupkafka"]
            cells |= {"CPU s/M": statistics.median(cpu), "/ Java": rate / cells["Java"]}
            wanted = None if goal is None else Goal("/ Java", at_least=goal)
            report.row(case, cells, wanted, rates=rates, cpu=cpu)
            ratio = {f"/ {name}": rate / cells[name] for name in ("confluent", "aiokafka", "kafka-python")}
            report.row(f"{case}, times", ratio, Goal("/ kafka-python", at_least=20.0))


if __name__ == "__main__":
    main()
