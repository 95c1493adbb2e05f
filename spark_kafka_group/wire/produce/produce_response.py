"""A broker's answer to a Produce request. Nothing in it is taken for granted."""

from __future__ import annotations

import struct
from typing import NamedTuple

import kafka.errors as kafka_errors

from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.produce.produce_request import FLEXIBLE_FROM
from spark_kafka_group.wire.reactions import Facts, Reaction, Request, advice, name_of, reaction_to

LONGEST_TEXT = 500
"""The most characters of a broker's text that are kept."""
LONGEST_VARINT = 5
UNKNOWN_OFFSET = -1

_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")
_PARTITION = struct.Struct(">ihqq")  # index, error, base offset, log append time
_OFFSET = struct.Struct(">q")


class ProduceError(NamedTuple):
    """Why a broker has not written a record batch, or does not say that it has."""

    name: str
    """Kafka's name of it."""
    reaction: Reaction
    advice: str | None
    """What to change, if that is known."""

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
    base_offset: int
    """Offset of the batch's first record; UNKNOWN_OFFSET where the broker does not say."""
    log_start_offset: int
    """First offset of the log; UNKNOWN_OFFSET where the broker does not say."""
    message: str
    """The broker's own words about the error; empty without."""


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
