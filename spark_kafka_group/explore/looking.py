"""Messages of a topic, decoded for the eye."""

from __future__ import annotations

import contextlib
import difflib
import heapq
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from operator import itemgetter
from typing import Any, ClassVar

from spark_kafka_group.errors import BrokerError, OffsetOutOfRangeError, OptionError, ReadError
from spark_kafka_group.explore.decoded import NULL, Decoded, decoded
from spark_kafka_group.explore.record_samples import headers_of, to_look_at
from spark_kafka_group.explore.shown_table import WIDTH, Laid, Table, milliseconds, moment, short_name, shown
from spark_kafka_group.options import Options
from spark_kafka_group.text.text_table import clipped, counted
from spark_kafka_group.tools.few_records import read, with_texts
from spark_kafka_group.values.offsets import OffsetRange, TopicPartition
from spark_kafka_group.wire.log_times import EARLIEST, LATEST, Found
from spark_kafka_group.wire.topic_admin import TopicAdmin, deleted_meanwhile, not_unpacked

MOST = 10_000  # the most messages of one call: so many are in memory, however many are read
MOST_LINES = 30  # the most lines of a value in a terminal
TOMBSTONE = "null: a tombstone, compaction removes earlier records of this key"
FURTHER_BACK = 4  # the factor by which more offsets are read if too few of them hold records
BY_TIME = itemgetter("timestamp", "partition", "offset")
Place = tuple[int, int, int]  # a record's by time


@dataclass(frozen=True)
class Message:
    """A record; the timestamp is None where the broker has none, or where no calendar has it."""

    topic: str
    partition: int
    offset: int
    timestamp: datetime | None
    key: Decoded
    value: Decoded
    headers: tuple[tuple[str, Decoded], ...] = ()

    @property
    def is_tombstone(self) -> bool:
        """Whether its value is null."""
        return self.value.kind == NULL


class Messages(Table[Message]):
    """Messages by time, the newest last. :meth:`to_df` has keys and values as they are shown."""

    ddl: ClassVar[str] = (
        "topic string, partition int, `offset` bigint, timestamp timestamp_ltz, key string, value string, "
        "value_bytes bigint, is_tombstone boolean, headers array<struct<key: string, value: string>>"
    )

    def title(self) -> str:
        return counted(len(self), "message")

    def headers(self) -> Sequence[str]:
        return ("partition", "offset", "timestamp", "key", "value", "headers")

    def cells(self, row: Message) -> Sequence[object]:
        return (row.partition, row.offset, row.timestamp, row.key, Laid(_value(row)), _headers(row))

    def values(self, row: Message) -> tuple[Any, ...]:
        key, value = (None if it.kind == NULL else it.text for it in (row.key, row.value))
        headers = [(name, str(header)) for name, header in row.headers]
        return (row.topic, row.partition, row.offset, row.timestamp, key, value, row.value.size, row.is_tombstone,
                headers)  # fmt: skip

    def __str__(self) -> str:
        return "\n".join([self.title(), *(line for row in self for line in _lines(row))])

    __repr__ = __str__


def look(
    options: Mapping[str, Any],
    topic: str,
    last: int = 20,
    *,
    at: datetime | None = None,
    offset: int | None = None,
    partition: int | None = None,
) -> Messages:
    """The newest messages of a topic, or those from a time or an offset on.

    Joins no group and commits nothing. Transactions that were aborted are left out if `kafka.isolation.level` is
    ``read_committed``.

    Parameters
    ----------
    last
        How many messages, at most 10,000; with `at` or `offset`, the first so many from there on.
    at
        From the first record of each partition on whose timestamp is as new. A time without a zone is this machine's.
    offset
        From this offset on, of `partition`, or of each partition.
    partition
        This partition only.

    Raises
    ------
    OptionError
        When an option or an argument is wrong, or the cluster does not have the topic or the partition.
    ReadError
        When records are damaged, or are deleted meanwhile, or the user may not read them.
    BrokerError
        When no broker answers, or the topic is deleted meanwhile, or the user may not describe it.
    """
    _check("last", last)
    if at is not None and offset is not None:
        raise OptionError("at and offset cannot both be given: choose one")
    parsed = to_look_at(options, topic)
    with TopicAdmin(parsed) as admin, _looked_at(admin, parsed):
        tps = existing(admin, parsed, topic, partition)
        logs = logs_of(admin, tps)
        if at is not None:
            return _from(parsed, logs, _starts_at(admin, tps, at), last)
        if offset is not None:
            return _from(parsed, logs, _checked(offset, logs), last)
        return _messages(parsed, _newest(admin, parsed, logs, last))


def newest_rows(options: Mapping[str, Any], topic: str, count: int) -> list[dict[str, Any]]:
    """The newest records of a topic, with the names of the source's columns. Raises OptionError, ReadError, BrokerError
    as :func:`look`."""
    _check("sampled", count)
    parsed = to_look_at(options, topic)
    with TopicAdmin(parsed) as admin, _looked_at(admin, parsed):
        return _newest(admin, parsed, logs_of(admin, existing(admin, parsed, topic)), count)


@contextlib.contextmanager
def _looked_at(admin: TopicAdmin, options: Options) -> Iterator[None]:
    """Turn the error about records that are gone into one for who looks: it advises queries."""
    try:
        yield
    except OffsetOutOfRangeError as error:
        if not admin.partitions(options.reading.subscription):
            raise deleted_meanwhile(error.topic) from error
        problem = "records from here on were deleted while they were looked at: look again"
        raise ReadError(error.topic, error.partition, error.offset, problem) from error


def _check(name: str, count: int) -> None:
    if not 1 <= count <= MOST:
        raise OptionError(f"{name} ({count}) must be between 1 and {MOST}")


def logs_of(admin: TopicAdmin, tps: Collection[TopicPartition]) -> dict[TopicPartition, OffsetRange]:
    """Logs from their starts to their ends."""
    wanted = [dict.fromkeys(tps, where) for where in (EARLIEST, LATEST)]
    begin, end = admin.lookups("looking up ends of logs", wanted)
    return {tp: OffsetRange(tp, offset_in(begin, tp), offset_in(end, tp)) for tp in tps}


def existing(admin: TopicAdmin, options: Options, topic: str, partition: int | None = None) -> list[TopicPartition]:
    """Partitions of a topic, or one of them. Raises OptionError when it is not there."""
    tps = sorted(admin.partitions(options.reading.subscription))
    if not tps:
        nearest = difflib.get_close_matches(topic, admin.topics(), n=1)
        more = f": the nearest name is {nearest[0]}" if nearest else ""
        raise OptionError(f"the cluster has no topic {topic}, or the user may not see it{more}")
    if partition is None:
        return tps
    if TopicPartition(topic, partition) not in tps:
        raise OptionError(f"topic {topic} has partitions 0 to {len(tps) - 1}, and no partition {partition}")
    return [TopicPartition(topic, partition)]


def _starts_at(admin: TopicAdmin, tps: Collection[TopicPartition], at: datetime) -> dict[TopicPartition, int]:
    """Offsets of the first records with timestamps as new; none for partitions without one."""
    asked = dict.fromkeys(tps, max(0, milliseconds("at", at)))
    (first,) = admin.lookups(f"looking up {next(iter(tps)).topic}", [asked])
    without = {tp for tp in tps if tp not in first}
    if without:
        raise BrokerError(f"looking up timestamps: {not_unpacked(without)}")
    return {tp: record.offset for tp, record in first.items() if record is not None}


def offset_in(found: Found, tp: TopicPartition, otherwise: int = 0) -> int:
    """The offset that was found in a log; `otherwise` where there is none."""
    record = found.get(tp)
    return otherwise if record is None else record.offset


def _checked(offset: int, logs: Mapping[TopicPartition, OffsetRange]) -> dict[TopicPartition, int]:
    """Where to start; of several partitions, those that have the offset."""
    there = {tp: offset for tp, log in logs.items() if log.start <= offset < log.end}
    if not there:
        first, last = min(log.start for log in logs.values()), max(log.end for log in logs.values())
        name = str(next(iter(logs))) if len(logs) == 1 else f"topic {next(iter(logs)).topic}"
        has = f"has the offsets from {first} up to {last - 1}" if first < last else "is empty"
        raise OptionError(f"offset ({offset}): {name} {has}")
    return there


def _from(
    options: Options, logs: Mapping[TopicPartition, OffsetRange], starts: Mapping[TopicPartition, int], count: int
) -> Messages:
    """The first messages from each start on: more offsets are read while these hold too few records."""
    span = count
    while True:
        ranges = [OffsetRange(tp, start, min(logs[tp].end, start + span)) for tp, start in starts.items()]
        found = heapq.nsmallest(count, read(options, ranges), key=BY_TIME)
        if len(found) >= count or all(r.end == logs[r.tp].end for r in ranges):
            return _messages(options, found)
        span *= FURTHER_BACK


def _newest(
    admin: TopicAdmin, options: Options, logs: Mapping[TopicPartition, OffsetRange], count: int
) -> list[dict[str, Any]]:
    """The last messages: of many partitions, those of the partitions that got records last."""
    filled = [tp for tp, log in logs.items() if log.size]
    if len(filled) > count:
        newest = admin.newest(filled)
        unknown = [tp for tp in filled if tp not in newest]
        filled = unknown + sorted(newest, key=lambda tp: -1 if (r := newest[tp]) is None else r.timestamp_ms)[-count:]
    newest_first: list[dict[str, Any]] = []
    ends = {tp: logs[tp].end for tp in filled}
    span = -(-FURTHER_BACK * count // max(1, len(ends)))
    while ends:
        ranges = [OffsetRange(tp, max(logs[tp].start, end - span), end) for tp, end in ends.items()]
        oldest: dict[TopicPartition, Place] = {}
        rows = itertools.chain(newest_first, _noting_oldest(read(options, ranges), oldest))
        newest_first = heapq.nlargest(count, rows, key=BY_TIME)
        least = BY_TIME(newest_first[-1]) if len(newest_first) == count else None
        ends = {
            r.tp: r.start
            for r in ranges
            if r.start > logs[r.tp].start and _may_have_newer(r, logs[r.tp], oldest.get(r.tp), least, count)
        }
        span *= FURTHER_BACK
    return newest_first[::-1]


def _may_have_newer(
    last_read: OffsetRange, log: OffsetRange, oldest: Place | None, least: Place | None, count: int
) -> bool:
    """Whether a partition may have records before a range that belong to the newest, of which `least` is the oldest.
    `oldest`: of the range; None if it has no records, only markers of transactions, or what compaction or an abort
    left. `least`: None if there are fewer than `count` yet."""
    if least is None:
        return True
    return log.end - last_read.start < count if oldest is None else oldest >= least


def _noting_oldest(rows: Iterable[dict[str, Any]], oldest: dict[TopicPartition, Place]) -> Iterator[dict[str, Any]]:
    for row in rows:
        tp, place = TopicPartition(row["topic"], row["partition"]), BY_TIME(row)
        oldest[tp] = min(place, oldest.get(tp, place))
        yield row


def _messages(options: Options, rows: Sequence[dict[str, Any]]) -> Messages:
    return Messages(tuple(map(_message, with_texts(options, rows))))


def _message(row: dict[str, Any]) -> Message:
    return Message(
        row["topic"], row["partition"], row["offset"], moment(row["timestamp"]), _decoded(row, "key"),
        _decoded(row, "value"), headers_of(row),
    )  # fmt: skip


def _decoded(row: dict[str, Any], name: str) -> Decoded:
    """By its format; by its looks where the options name no format, or it does not fit."""
    text = row.get(f"{name}_text")
    return decoded(row[name]) if text is None else replace(decoded(text.encode()), size=len(row[name]))


def _value(row: Message) -> str:
    return TOMBSTONE if row.is_tombstone else str(row.value)


def _headers(row: Message) -> str:
    return ", ".join(f"{name}={value}" for name, value in row.headers)


def _lines(row: Message) -> list[str]:
    """A message in a terminal: its place, its headers, and its value below."""
    place = f"{short_name(row.topic)}-{row.partition} offset {row.offset}  {shown(row.timestamp)}  key {shown(row.key)}"
    head = [place, *([f"  headers {shown(_headers(row))}"] if row.headers else [])]
    value = _value(row).split("\n")
    more = [f"… {len(value) - MOST_LINES} more lines"] if len(value) > MOST_LINES else []
    return [clipped(line, WIDTH) for line in [*head, *(f"    {line}" for line in value[:MOST_LINES] + more)]]
