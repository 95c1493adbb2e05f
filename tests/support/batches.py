"""Record batches to send, and the records that logs have."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from kafka import KafkaConsumer
from kafka.structs import TopicPartition as KafkaTopicPartition

from spark_kafka_group.executor.encode import Compression, EncodedBatch, load
from spark_kafka_group.executor.writing.sender import Sender
from spark_kafka_group.executor.writing.write import binary_column
from spark_kafka_group.options import ClientOptions, Options
from spark_kafka_group.options.producing import Producing
from spark_kafka_group.values.offsets import TopicPartition

ENCODER = load("auto")


def batch_of(tp: TopicPartition, values: Iterable[bytes], compression: str = "none") -> EncodedBatch:
    """A record batch of values without keys."""
    from spark_kafka_group.executor.encode import CODECS

    column = pa.array(list(values), pa.binary())
    rows = ENCODER.Rows(len(column), None, binary_column(column), None)
    builder = ENCODER.BatchBuilder(
        topic=tp.topic,
        partition=tp.partition,
        batch_size=1 << 27,
        max_request_size=1 << 27,
        compression=Compression(CODECS[compression]),
    )
    indices = memoryview(pa.array(range(len(column)), pa.int32()).buffers()[1]).cast("B").cast("i")
    # Brokers forget a producer whose last record is a day old, by its own time, and with it what was sent before.
    assert builder.append(rows, indices[: len(column)], 0, int(time.time() * 1000)) == len(column)
    return builder.seal()


def client_options(servers: str, **more: Any) -> ClientOptions:
    """Options of a client."""
    given = {"kafka.bootstrap.servers": servers, "subscribe": "unused"}
    return Options.parse(given | {name: str(value) for name, value in more.items()}).client


def sender(servers: str, producing: Producing | None = None, transaction: Any = None, **more: Any) -> Sender:
    """A sender; `more` are options of its client."""
    return Sender(client_options(servers, **more), producing or Producing(), ENCODER, transaction)


def numbered(first: int, end: int, size: int = 0) -> list[bytes]:
    """Values that are numbers, each of so many bytes at least."""
    return [(b"%d" % n).ljust(size, b" ") for n in range(first, end)]


def numbers(values: Iterable[bytes]) -> list[int]:
    """The numbers in values."""
    return [int(value) for value in values]


def log_of(kafka: Any, tp: TopicPartition, within_s: float = 60, **configs: Any) -> list[bytes]:
    """Values of a partition, in the order of its log."""
    consumer = KafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers,
        enable_auto_commit=False,
        max_partition_fetch_bytes=1 << 24,
        **configs,
    )
    try:
        there = KafkaTopicPartition(*tp)
        consumer.assign([there])
        consumer.seek_to_beginning(there)
        end = consumer.end_offsets([there])[there]
        values: list[bytes] = []
        while consumer.position(there) < end:
            values += [record.value for records in consumer.poll(timeout_ms=1000).values() for record in records]
        return values
    finally:
        consumer.close(autocommit=False)


def differences(found: list[int], sent: Iterable[int]) -> str:
    """What is wrong with a log that should have just these numbers, in this order; empty if nothing is."""
    expected = list(sent)
    counts, missing = Counter(found), [n for n in expected if n not in set(found)] if found != expected else []
    doubled = [n for n, times in counts.items() if times > 1]
    if missing or doubled:
        return f"missing {missing[:5]} ({len(missing)}), twice {doubled[:5]} ({len(doubled)})"
    return "" if found == expected else "out of order"
