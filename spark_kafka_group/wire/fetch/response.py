"""A broker's answer to a fetch, taken apart without copying records.

kafka-python's decoder copies the records of each partition, which costs as much as decoding them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

import kafka.errors as kafka_errors

from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.reactions import Facts, Reaction, Request, advice, reaction_to

VERSIONS = range(4, 14)  # versions of FetchResponse that are understood
FLEXIBLE_FROM, IDS_FROM = 12, 13
"""The versions that first have variable lengths and tagged fields (KIP-482), and name topics by their ids (KIP-516); in
requests, too."""
MOST_OF_A_LENGTH = 5  # bytes

NO_REPLICA = -1
ID_BYTES = 16

_INT32 = struct.Struct(">i")
_LENGTH = struct.Struct(">h")
_ERROR_AND_SESSION = struct.Struct(">hi")
_ABORTED = struct.Struct(">qq")
_PARTITION = struct.Struct(">ihqq")  # index, error, high watermark, last stable offset


class FetchError(NamedTuple):
    """Why a broker sends nothing of a partition."""

    name: str  # its name for texts, such as ``OffsetOutOfRangeError``
    reaction: Reaction  # the reaction to it
    advice: str | None  # advice for the user, if there is any

    @classmethod
    def from_code(cls, code: int, topic: str) -> FetchError:
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
    high_watermark: int  # where the log ends for consumers
    last_stable_offset: int | None
    """Under read_committed, where the first transaction that is open begins, else the log ends: nothing is sent from
    there on. None under read_uncommitted."""
    aborted: tuple[tuple[int, int], ...]
    """Producer id and first offset of each aborted transaction in the records; none under read_uncommitted."""
    records: memoryview  # within the response, so valid for as long as that is
    preferred_replica: int | None = None
    """Node of a replica in the reader's rack, which the leader names instead of sending records (KIP-392)."""


def names_by_id(topic_ids: Mapping[str, str]) -> Mapping[bytes, str]:
    """Topics by their ids, as responses have these."""
    return {UUID(topic_id).bytes: topic for topic, topic_id in topic_ids.items()}


def fetched(
    response: memoryview, version: int, committed_only: bool, names: Mapping[bytes, str] = MappingProxyType({})
) -> tuple[int, int, list[FetchedPartition]]:
    """Milliseconds to wait before the next request, error code, and partitions of a response behind its correlation id.
    `names`: of the topics that the request named by ids, as its version does. Raises ValueError, struct.error when it
    is no FetchResponse of that version."""
    flexible = version >= FLEXIBLE_FROM
    at, error_code = _behind_tags(response, 0) if flexible else 0, 0
    (throttle_ms,) = _INT32.unpack_from(response, at)
    at += _INT32.size
    if version >= 7:
        error_code, _ = _ERROR_AND_SESSION.unpack_from(response, at)
        at += _ERROR_AND_SESSION.size
    partitions: list[FetchedPartition] = []
    count_of = _short_count if flexible else _count
    topics, at = count_of(response, at)
    for _ in range(topics):
        if version >= IDS_FROM:
            topic, at = _topic_of_id(response, at, names)
        else:
            topic, at = _topic(response, at, flexible)
        count, at = count_of(response, at)
        for _ in range(count):
            partition, at = _partition(response, at, version, topic, committed_only)
            partitions.append(partition)
        at = _behind_tags(response, at) if flexible else at
    if flexible:
        _behind_tags(response, at)
    return throttle_ms, error_code, partitions


def _topic(response: memoryview, at: int, flexible: bool) -> tuple[str, int]:
    if flexible:
        length, at = _short_count(response, at)
    else:
        (length,) = _LENGTH.unpack_from(response, at)
        at += _LENGTH.size
    return str(_part(response, at, length), "utf-8"), at + length


def _topic_of_id(response: memoryview, at: int, names: Mapping[bytes, str]) -> tuple[str, int]:
    topic_id = bytes(_part(response, at, ID_BYTES))
    if topic_id not in names:
        raise ValueError(f"topic id {UUID(bytes=topic_id)}, which was not asked for")
    return names[topic_id], at + ID_BYTES


def _partition(
    response: memoryview, at: int, version: int, topic: str, committed_only: bool
) -> tuple[FetchedPartition, int]:
    index, error_code, high_watermark, last_stable_offset = _PARTITION.unpack_from(response, at)
    at += _PARTITION.size
    if version >= 5:
        at += 8  # log start offset
    flexible = version >= FLEXIBLE_FROM
    count_of = _short_count if flexible else _count
    transactions, at = count_of(response, at, nullable=True)
    aborted: tuple[tuple[int, int], ...] = ()
    if flexible:
        of_all = []
        for _ in range(transactions):
            of_all.append(_ABORTED.unpack_from(response, at))
            at = _behind_tags(response, at + _ABORTED.size)
        aborted = tuple(of_all) if committed_only else ()
    else:
        end = at + transactions * _ABORTED.size
        if committed_only and transactions:
            aborted = tuple(_ABORTED.iter_unpack(_part(response, at, end - at)))
        at = end
    preferred_replica = NO_REPLICA
    if version >= 11:
        (preferred_replica,) = _INT32.unpack_from(response, at)
        at += _INT32.size
    size, at = count_of(response, at, nullable=True)
    records = _part(response, at, size)
    end = _behind_tags(response, at + size) if flexible else at + size
    stable = last_stable_offset if committed_only else None
    tp = TopicPartition(topic, index)
    error = FetchError.from_code(error_code, topic) if error_code else None
    preferred = None if preferred_replica == NO_REPLICA else preferred_replica
    return FetchedPartition(tp, error, high_watermark, stable, aborted, records, preferred), end


def _count(response: memoryview, at: int, nullable: bool = False) -> tuple[int, int]:
    """A length, of which -1 stands for null where there may be one, and the byte after it."""
    (count,) = _INT32.unpack_from(response, at)
    if count == -1 and nullable:
        count = 0
    if count < 0:
        raise ValueError(f"a length of {count}")
    return count, at + _INT32.size


def _short_count(response: memoryview, at: int, nullable: bool = False) -> tuple[int, int]:
    """As :func:`_count`, of a variable length that is one more than it says: 0 stands for null."""
    count, at = _number(response, at)
    if count == 0 and not nullable:
        raise ValueError("no length where there has to be one")
    return max(count - 1, 0), at


def _number(response: memoryview, at: int) -> tuple[int, int]:
    """An unsigned number of variable length, and the byte after it."""
    found = 0
    for n, byte in enumerate(response[at : at + MOST_OF_A_LENGTH]):
        found |= (byte & 0x7F) << 7 * n
        if byte < 0x80:
            return found, at + n + 1
    raise ValueError(f"a number at {at} that does not end")


def _behind_tags(response: memoryview, at: int) -> int:
    """The byte after tagged fields, none of which is needed here."""
    fields, at = _number(response, at)
    for _ in range(fields):
        _, at = _number(response, at)
        size, at = _number(response, at)
        at += len(_part(response, at, size))
    return at


def _part(response: memoryview, at: int, size: int) -> memoryview:
    part = response[at : at + size] if size >= 0 else None
    if part is None or len(part) != size:
        raise ValueError(f"{size} bytes at {at}, where {max(len(response) - at, 0)} are left")
    return part
