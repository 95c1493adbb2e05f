"""What topics hold, without reading them."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from spark_kafka_group.errors import OptionError
from spark_kafka_group.explore.decoded import Decoded
from spark_kafka_group.explore.looking import offset_in
from spark_kafka_group.explore.record_samples import Sample, samples, to_look_at_topics
from spark_kafka_group.explore.shown_table import Table, moment
from spark_kafka_group.text.text_table import counted
from spark_kafka_group.values.offsets import OffsetRange, TopicPartition
from spark_kafka_group.wire.log_times import EARLIEST, LATEST, Found
from spark_kafka_group.wire.topic_admin import Leaders, TopicAdmin

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
SAMPLED = 5  # the last offsets of a topic, among which a record is looked for: transactions' markers are no records


@dataclass(frozen=True)
class Topic:
    """A topic at one moment.

    Attributes
    ----------
    partitions
        How many it has.
    records
        Offsets between the beginnings and the ends of its logs: records may be fewer, as compaction and transactions
        leave gaps.
    bytes
        On the disks of the partitions' leaders, without replicas; None where the user may not look (Describe on the
        cluster).
    first, last
        The earliest time of a partition's first record, and the greatest timestamp; None where there is none.
    skew
        Records of the largest partition, by the mean of all: 1.0 is even. None without records.
    records_per_second
        Over the last minute, and the last hour, by the records' timestamps.
    compression
        Of the record batch of the sample: ``none``, ``gzip``, ``snappy``, ``lz4`` or ``zstd``; None where no record
        could be read.
    key, headers
        Of the sample, one of the last records of the largest partition.
    without_leader
        Partitions that have no leader now: they are counted, and nothing else of them is known.
    """

    topic: str
    partitions: int
    records: int
    bytes: int | None
    first: datetime | None
    last: datetime | None
    skew: float | None
    records_per_second: tuple[float, float]
    compression: str | None
    key: Decoded | None
    headers: tuple[tuple[str, Decoded], ...]
    without_leader: int = 0


class Topics(Table[Topic]):
    """Topics by name. :meth:`to_df` has all but the sample's headers' values."""

    ddl: ClassVar[str] = (
        "topic string, partitions int, records bigint, bytes bigint, first timestamp_ltz, last timestamp_ltz, "
        "skew double, per_second_of_minute double, per_second_of_hour double, compression string, key string, "
        "headers array<string>"
    )

    wide: ClassVar[frozenset[str]] = frozenset({"first", "key"})

    def title(self) -> str:
        return f"{counted(len(self), 'topic')}, {counted(sum(row.records for row in self), 'record')}"

    def headers(self) -> Sequence[str]:
        return ("topic", "parts", "records", "bytes", "first", "last", "skew", "/s", "codec", "key")

    def cells(self, row: Topic) -> Sequence[object]:
        return (row.topic, row.partitions, row.records, row.bytes, row.first, row.last, row.skew,
                row.records_per_second[0], row.compression, row.key and str(row.key))  # fmt: skip

    def values(self, row: Topic) -> tuple[Any, ...]:
        names = [name for name, _ in row.headers]
        return (row.topic, row.partitions, row.records, row.bytes, row.first, row.last, row.skew,
                *row.records_per_second, row.compression, row.key and str(row.key), names)  # fmt: skip


@dataclass(frozen=True)
class _Logs:
    """Answers about all partitions that have a leader."""

    begin: Found
    first: Found
    newest: Found
    minute: Found
    hour: Found
    end: Found


def topics(options: Mapping[str, Any]) -> Topics:
    """The topics that `options` subscribe to (`subscribe`, `subscribePattern`, `assign`), or all of them.

    Asks for offsets and times, and fetches one small sample of each topic. Joins no group and commits nothing.

    Parameters
    ----------
    options
        As of the source; those of groups and of where a query starts have no effect.

    Raises
    ------
    OptionError
        When an option is wrong, or names a topic that the cluster does not have.
    BrokerError
        When no broker answers, or the user may not describe a topic that is named.
    """
    parsed = to_look_at_topics(options)
    with TopicAdmin(parsed) as admin:
        leaders = admin.partitions(parsed.reading.subscription)
        missing = parsed.reading.subscription.missing(leaders.keys())
        if missing:
            raise OptionError(f"the options name {', '.join(missing)}, which the cluster does not have")
        led = [tp for tp, leader in leaders.items() if leader is not None]
        logs = _logs(admin, led, round(time.time() * 1000))
        sizes = admin.bytes_of(leaders)
    by_topic: dict[str, list[TopicPartition]] = {}
    for tp in leaders:
        by_topic.setdefault(tp.topic, []).append(tp)
    found = samples(parsed, [r for tps in by_topic.values() for r in _last_of_largest(tps, logs)])
    made = (_topic(name, tps, leaders, logs, sizes, found.get(name, Sample())) for name, tps in by_topic.items())
    return Topics(tuple(sorted(made, key=lambda topic: topic.topic)))


def _logs(admin: TopicAdmin, tps: Collection[TopicPartition], now_ms: int) -> _Logs:
    if not tps:
        return _Logs({}, {}, {}, {}, {}, {})
    # The ends come last: a record that comes meanwhile is not before a beginning.
    times = [EARLIEST, 0, now_ms - MINUTE_MS, now_ms - HOUR_MS, LATEST]
    begin, first, minute, hour, end = admin.lookups("looking up logs", [dict.fromkeys(tps, at) for at in times])
    there = [tp for tp in tps if tp not in first or first[tp] is not None]
    return _Logs(begin, first, admin.newest(there) if there else {}, minute, hour, end)


def _last_of_largest(tps: Collection[TopicPartition], logs: _Logs) -> list[OffsetRange]:
    largest = max(tps, key=lambda tp: _records(tp, logs))
    count = min(SAMPLED, _records(largest, logs))
    end = offset_in(logs.end, largest)
    return [OffsetRange(largest, end - count, end)] if count else []


def _records(tp: TopicPartition, logs: _Logs) -> int:
    return max(0, offset_in(logs.end, tp) - offset_in(logs.begin, tp))


def _since(found: Found, end: Found, tps: Collection[TopicPartition], ms: int) -> float:
    starts = {tp: record for tp in tps if (record := found.get(tp)) is not None}
    return sum(max(0, offset_in(end, tp) - record.offset) for tp, record in starts.items()) / ms * 1000


def _topic(
    name: str,
    tps: Collection[TopicPartition],
    leaders: Leaders,
    logs: _Logs,
    sizes: Mapping[TopicPartition, int] | None,
    sample: Sample,
) -> Topic:
    counts = [_records(tp, logs) for tp in tps]
    firsts = [record.timestamp_ms for tp in tps if (record := logs.first.get(tp)) is not None]
    lasts = [record.timestamp_ms for tp in tps if (record := logs.newest.get(tp)) is not None]
    return Topic(
        topic=name,
        partitions=len(tps),
        records=sum(counts),
        bytes=None if sizes is None else sum(sizes.get(tp, 0) for tp in tps),
        first=moment(min(firsts, default=None)),
        last=moment(max(lasts, default=None)),
        skew=max(counts) * len(counts) / sum(counts) if sum(counts) else None,
        records_per_second=(
            _since(logs.minute, logs.end, tps, MINUTE_MS),
            _since(logs.hour, logs.end, tps, HOUR_MS),
        ),
        compression=sample.compression,
        key=sample.key,
        headers=sample.headers,
        without_leader=sum(leaders[tp] is None for tp in tps),
    )
