"""A broker's answer to a fetch, taken apart without copying records.

kafka-python's decoder copies the records of each partition, which costs as much as decoding them.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import kafka.errors as kafka_errors

from spark_kafka_group.offsets import TopicPartition
from spark_kafka_group.wire.reactions import Facts, Reaction, Request, advice, reaction_to

VERSIONS = range(4, 12)
"""Versions of FetchResponse that are understood; later ones name topics by ids."""

NO_REPLICA = -1

_INT32 = struct.Struct(">i")
_LENGTH = struct.Struct(">h")
_ERROR_AND_SESSION = struct.Struct(">hi")
_ABORTED = struct.Struct(">qq")
_PARTITION = struct.Struct(">ihqq")  # index, error, high watermark, last stable offset


class FetchError(NamedTuple):
    """Why a broker sends nothing of a partition."""

    name: str
    """Its name for texts, such as ``OffsetOutOfRangeError``."""
    reaction: Reaction
    """The reaction to it."""
    advice: str | None
    """Advice for the user, if there is any."""

    @classmethod
    def of(cls, code: int, topic: str) -> FetchError:
        """The error of a code of Kafka's."""
        error = kafka_errors.for_code(code)
        change = advice(str(error.message), Request.FETCH, Facts(), [topic])
        return cls(error.__name__, reaction_to(error, Request.FETCH), change)

    def __str__(self) -> str:
        return self.name


class FetchedPartition(NamedTuple):
    """One partition of a fetch response."""

    tp: TopicPartition
    error: FetchError | None
    high_watermark: int
    """Where the log ends for consumers."""
    last_stable_offset: int | None
    """Under read_committed, where the first transaction that is open begins, else the log ends: nothing is sent from
    there on. None under read_uncommitted."""
    aborted: tuple[tuple[int, int], ...]
    """Producer id and first offset of each aborted transaction in the records; none under read_uncommitted."""
    records: memoryview
    """Within the response, so valid for as long as that is."""
    preferred_replica: int | None = None
    """Node of a replica in the reader's rack, which the leader names instead of sending records (KIP-392)."""


def fetched(response: memoryview, version: int, committed_only: bool) -> tuple[int, int, list[FetchedPartition]]:
    """Milliseconds to wait before the next request, error code, and partitions of a response without its header.

    Raises
    ------
    ValueError, struct.error
        When it is no FetchResponse of that version.
    """
    (throttle_ms,) = _INT32.unpack_from(response)
    at, error_code = _INT32.size, 0
    if version >= 7:
        error_code, _ = _ERROR_AND_SESSION.unpack_from(response, at)
        at += _ERROR_AND_SESSION.size
    partitions: list[FetchedPartition] = []
    topics, at = _count(response, at)
    for _ in range(topics):
        (length,) = _LENGTH.unpack_from(response, at)
        at += _LENGTH.size
        topic = str(_part(response, at, length), "utf-8")
        at += length
        count, at = _count(response, at)
        for _ in range(count):
            partition, at = _partition(response, at, version, topic, committed_only)
            partitions.append(partition)
    return throttle_ms, error_code, partitions


def _partition(
    response: memoryview, at: int, version: int, topic: str, committed_only: bool
) -> tuple[FetchedPartition, int]:
    index, error_code, high_watermark, last_stable_offset = _PARTITION.unpack_from(response, at)
    at += _PARTITION.size
    if version >= 5:
        at += 8  # log start offset
    transactions, at = _count(response, at, nullable=True)
    end = at + transactions * _ABORTED.size
    aborted: tuple[tuple[int, int], ...] = ()
    if committed_only and transactions:
        aborted = tuple(_ABORTED.iter_unpack(_part(response, at, end - at)))
    at = end
    preferred_replica = NO_REPLICA
    if version >= 11:
        (preferred_replica,) = _INT32.unpack_from(response, at)
        at += _INT32.size
    size, at = _count(response, at, nullable=True)
    records = _part(response, at, size)
    stable = last_stable_offset if committed_only else None
    tp = TopicPartition(topic, index)
    error = FetchError.of(error_code, topic) if error_code else None
    preferred = None if preferred_replica == NO_REPLICA else preferred_replica
    return FetchedPartition(tp, error, high_watermark, stable, aborted, records, preferred), at + size


def _count(response: memoryview, at: int, nullable: bool = False) -> tuple[int, int]:
    """A length, of which -1 stands for null where there may be one, and the byte after it."""
    (count,) = _INT32.unpack_from(response, at)
    if count == -1 and nullable:
        count = 0
    if count < 0:
        raise ValueError(f"a length of {count}")
    return count, at + _INT32.size


def _part(response: memoryview, at: int, size: int) -> memoryview:
    part = response[at : at + size] if size >= 0 else None
    if part is None or len(part) != size:
        raise ValueError(f"{size} bytes at {at}, where {max(len(response) - at, 0)} are left")
    return part
