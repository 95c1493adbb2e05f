"""Produce requests as parts: record batches are in them as they are, and are not copied."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from spark_kafka_group.values.offsets import TopicPartition

VERSIONS = range(3, 13)
"""Versions of ProduceRequest that are written; before, there were no record batches of message format v2, and later
ones name topics by ids."""
LAST_IN_TRANSACTIONS = 11
"""Later versions add partitions to transactions by themselves, on brokers with transaction.version 2 (KIP-890)."""
ZSTD_FROM = 7
"""The version that first takes record batches compressed with zstd (KIP-110)."""
FLEXIBLE_FROM = 9

API_KEY = 0
_HEADER = struct.Struct(">hhih")
_ACKS_AND_TIMEOUT = struct.Struct(">hi")
_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")
NO_TAGS = b"\0"
ACKS = {"all": -1, "1": 1, "0": 0}

Batch = bytes | bytearray | memoryview


@dataclass(frozen=True)
class ProduceSettings:
    """What all requests of a producer have in common."""

    acks: str  # as kafka.acks: ``all``, ``1`` or ``0``
    timeout_ms: int  # how long a leader waits for the other replicas
    transactional_id: str | None = None


def varint(number: int) -> bytes:
    """An unsigned number as flexible versions write it."""
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def request_parts(
    batches: Mapping[TopicPartition, Batch],
    version: int,
    correlation_id: int,
    client_id: str,
    settings: ProduceSettings,
) -> list[memoryview]:
    """A request with its frame, to be sent part after part: one record batch for each partition."""
    flexible = version >= FLEXIBLE_FROM
    tags = NO_TAGS if flexible else b""
    client = client_id.encode()
    head = bytearray(_HEADER.pack(API_KEY, version, correlation_id, len(client)) + client + tags)
    head += _text(settings.transactional_id, flexible)
    head += _ACKS_AND_TIMEOUT.pack(ACKS[settings.acks], settings.timeout_ms)
    topics: dict[str, list[tuple[int, Batch]]] = {}
    for tp, batch in batches.items():
        topics.setdefault(tp.topic, []).append((tp.partition, batch))
    head += _count(len(topics), flexible)
    parts: list[Batch] = []
    for topic, partitions in topics.items():
        head += _text(topic, flexible) + _count(len(partitions), flexible)
        for partition, batch in partitions:
            head += _INT32.pack(partition) + _count(len(batch), flexible)
            parts += head, batch
            head = bytearray(tags)
        head += tags
    head += tags
    parts.append(head)
    size = sum(map(len, parts))
    return [memoryview(_INT32.pack(size)), *(memoryview(part) for part in parts if part)]


def overhead(tp: TopicPartition) -> int:
    """The most bytes that a partition adds to a request, without its record batch."""
    return len(tp.topic) * 4 + 24


def _text(text: str | None, flexible: bool) -> bytes:
    written = b"" if text is None else text.encode()
    if flexible:
        return b"\0" if text is None else varint(len(written) + 1) + written
    return _INT16.pack(-1 if text is None else len(written)) + written


def _count(count: int, flexible: bool) -> bytes:
    return varint(count + 1) if flexible else _INT32.pack(count)
