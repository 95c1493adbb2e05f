"""Produce requests as parts, which hold record batches without a copy, and brokers' answers to them.

Nothing in an answer is taken for granted.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import kafka.errors as kafka_errors

from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.reactions import Facts, Reaction, Request, advice, name_of, reaction_to

VERSIONS = range(3, 13)
"""Versions of ProduceRequest that are written; before, there were no record batches of message format v2, and later
ones name topics by ids."""
LAST_IN_TRANSACTIONS = 11
"""Later versions add partitions to transactions by themselves, on brokers with transaction.version 2 (KIP-890)."""
ZSTD_FROM = 7  # the version that first takes record batches compressed with zstd (KIP-110)
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


LONGEST_TEXT = 500  # the most characters of a broker's text that are kept
LONGEST_VARINT = 5
UNKNOWN_OFFSET = -1

_PARTITION = struct.Struct(">ihqq")  # index, error, base offset, log append time
_OFFSET = struct.Struct(">q")


class ProduceError(NamedTuple):
    """Why a broker has not written a record batch, or does not say that it has."""

    name: str  # Kafka's name of it
    reaction: Reaction
    advice: str | None  # what to change, if that is known

    @classmethod
    def from_code(cls, code: int, topic: str) -> ProduceError:
        """The error of a code of Kafka's."""
        error = kafka_errors.for_code(code)
        name = name_of(error)
        return cls(name, reaction_to(error, Request.PRODUCE), advice(name, Request.PRODUCE, Facts(), [topic]))


class ProducedPartition(NamedTuple):
    """The answer about one partition."""

    tp: TopicPartition
    error: ProduceError | None
    base_offset: int  # offset of the batch's first record; UNKNOWN_OFFSET where the broker does not say
    log_start_offset: int  # first offset of the log; UNKNOWN_OFFSET where the broker does not say
    message: str  # the broker's own words about the error; empty without


def produced(response: memoryview, version: int) -> tuple[int, list[ProducedPartition]]:
    """Milliseconds to wait before the next request, and partitions of a response without its correlation id. Raises
    ValueError, struct.error when it is no ProduceResponse of that version."""
    reader = _Reader(response, version >= FLEXIBLE_FROM)
    reader.tags()  # of the header
    partitions: list[ProducedPartition] = []
    for _ in range(reader.count()):
        topic = reader.text() or ""
        partitions += [_partition(reader, topic, version) for _ in range(reader.count())]
        reader.tags()
    (throttle_ms,) = reader.read_numbers(_INT32)
    reader.tags()
    reader.end()
    return throttle_ms, partitions


def _partition(reader: _Reader, topic: str, version: int) -> ProducedPartition:
    index, code, base_offset, _ = reader.read_numbers(_PARTITION)
    log_start_offset, words = UNKNOWN_OFFSET, list[str]()
    if version >= 5:
        (log_start_offset,) = reader.read_numbers(_OFFSET)
    if version >= 8:
        for _ in range(reader.count()):
            reader.read_numbers(_INT32)  # which record of the batch
            words.append(reader.text() or "")
            reader.tags()
        words.append(reader.text() or "")
    reader.tags()
    error = ProduceError.from_code(code, topic) if code else None
    message = "; ".join(dict.fromkeys(filter(None, words)))[:LONGEST_TEXT]
    return ProducedPartition(TopicPartition(topic, index), error, base_offset, log_start_offset, message)


class _Reader:
    """Reads a response from its first byte to its last, with a check of every length."""

    def __init__(self, data: memoryview, flexible: bool) -> None:
        self._data = data
        self._flexible = flexible
        self._at = 0

    def read_numbers(self, numbers: struct.Struct) -> tuple[int, ...]:
        """Numbers of a fixed size."""
        taken = numbers.unpack_from(self._data, self._at)
        self._at += numbers.size
        return taken

    def count(self) -> int:
        """The length of an array; each of its items has bytes."""
        count = self._varint() - 1 if self._flexible else self.read_numbers(_INT32)[0]
        if not 0 <= count <= len(self._data) - self._at:
            raise ValueError(f"{count} items at {self._at}, where {len(self._data) - self._at} bytes are left")
        return int(count)

    def text(self) -> str | None:
        """A text, or None for null."""
        size = self._varint() - 1 if self._flexible else self.read_numbers(_INT16)[0]
        return None if size == -1 else str(self._part(size), "utf-8", "replace")

    def tags(self) -> None:
        """Skip tagged fields (KIP-482), such as hints about the leader (KIP-951)."""
        if self._flexible:
            for _ in range(self._varint()):
                self._varint()
                self._part(self._varint())

    def end(self) -> None:
        """Check that nothing is left."""
        if self._at != len(self._data):
            raise ValueError(f"{len(self._data) - self._at} bytes are left over")

    def _part(self, size: int) -> memoryview:
        if not 0 <= size <= len(self._data) - self._at:
            raise ValueError(f"{size} bytes at {self._at}, where {len(self._data) - self._at} are left")
        self._at += size
        return self._data[self._at - size : self._at]

    def _varint(self) -> int:
        number = 0
        for place in range(LONGEST_VARINT):
            if self._at >= len(self._data):
                raise ValueError(f"a number at {self._at} is cut off")
            byte = self._data[self._at]
            self._at += 1
            number |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return number
        raise ValueError(f"a number before {self._at} is too long")
