"""Records over time, by the offsets of times: no record is read."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar

from spark_kafka_group.errors import OptionError
from spark_kafka_group.explore.looking import existing, logs_of, offset_in
from spark_kafka_group.explore.record_samples import to_look_at
from spark_kafka_group.explore.shown_table import Table, milliseconds, moment, short_name
from spark_kafka_group.values.offsets import OffsetRange, TopicPartition
from spark_kafka_group.wire.topic_admin import TopicAdmin

DAY_MS = 86_400_000
MOST_POINTS = 10_000
BAR = 30  # characters of the longest bar


@dataclass(frozen=True)
class Interval:
    """Records with start <= timestamp < end, where timestamps are in order; times in UTC."""

    start: datetime
    end: datetime
    records: int

    @property
    def per_second(self) -> float:
        """Records a second."""
        return self.records / (self.end - self.start).total_seconds()


@dataclass(frozen=True, repr=False)
class Rate(Table[Interval]):
    """Intervals of equal length, in order."""

    topic: str

    ddl: ClassVar[str] = "start timestamp_ltz, `end` timestamp_ltz, records bigint, per_second double"

    @cached_property
    def _most(self) -> int:
        return max((interval.records for interval in self), default=0)

    def title(self) -> str:
        return f"topic {short_name(self.topic)}: {sum(row.records for row in self):,} records"

    def headers(self) -> Sequence[str]:
        return ("start", "records", "/s", "")

    def cells(self, row: Interval) -> Sequence[object]:
        share = row.records / self._most if self._most else 0
        return (row.start, row.records, row.per_second, "█" * round(BAR * share))

    def values(self, row: Interval) -> tuple[Any, ...]:
        return (row.start, row.end, row.records, row.per_second)


def rate(
    options: Mapping[str, Any],
    topic: str,
    since: datetime | None = None,
    until: datetime | None = None,
    points: int = 96,
) -> Rate:
    """Records of a topic per interval.

    Brokers say which offset each log had at each time: the first whose timestamp is as new. So where a producer sends
    old timestamps after newer ones, these records count for the newer time. Compaction and transactions leave gaps
    between offsets, which count too. Records count later where a broker does not look up their time, with a warning.

    Parameters
    ----------
    since, until
        By default, the last day. Times without a zone are this machine's.
    points
        How many intervals.

    Raises
    ------
    OptionError
        When an option or an argument is wrong, or the cluster does not have the topic.
    BrokerError
    """
    until_ms = round(time.time() * 1000) if until is None else milliseconds("until", until)
    since_ms = until_ms - DAY_MS if since is None else milliseconds("since", since)
    if not 1 <= points <= MOST_POINTS:
        raise OptionError(f"points ({points}) must be between 1 and {MOST_POINTS}")
    if since_ms < 0 or until_ms - since_ms < points:
        raise OptionError(f"since ({moment(since_ms)}) must be at least {points} ms before until ({moment(until_ms)})")
    times = [since_ms + (until_ms - since_ms) * n // points for n in range(points + 1)]
    parsed = to_look_at(options, topic)
    with TopicAdmin(parsed) as admin:
        counts = _counts(admin, existing(admin, parsed, topic), times)
    edges = itertools.pairwise(moment(at) for at in times)
    rows = (Interval(start, end, n) for (start, end), n in zip(edges, counts, strict=True) if start and end)
    return Rate(tuple(rows), topic)


def _counts(admin: TopicAdmin, tps: Sequence[TopicPartition], times: Sequence[int]) -> list[int]:
    """Records between each time and the next one, of all partitions."""
    logs = {tp: log for tp, log in logs_of(admin, tps).items() if log.size > 0}
    if not logs:
        return [0] * (len(times) - 1)
    known = _Known(admin, times, logs)
    known.fill()
    sums = [sum(known.at[tp][n] for tp in logs) for n in range(len(times))]
    return [after - before for before, after in itertools.pairwise(sums)]


class _Known:
    """Offsets of partitions at times. Between two times with one offset, all have it: only the others are asked for."""

    def __init__(self, admin: TopicAdmin, times: Sequence[int], logs: Mapping[TopicPartition, OffsetRange]) -> None:
        self._admin, self._times, self._logs = admin, times, logs
        self.at: dict[TopicPartition, dict[int, int]] = {tp: {} for tp in logs}

    def fill(self) -> None:
        """Look up the ends of the times, and what lies between, by halves."""
        begins, last = {tp: log.start for tp, log in self._logs.items()}, len(self._times) - 1
        self._ask({0: begins, last: begins})
        gaps = [(tp, 0, last) for tp in self._logs]
        while gaps:
            asked: dict[int, dict[TopicPartition, int]] = {}
            halves = []
            for tp, first, last in gaps:
                if self.at[tp][first] == self.at[tp][last]:
                    self.at[tp] |= dict.fromkeys(range(first + 1, last), self.at[tp][first])
                elif last - first > 1:
                    middle = (first + last) // 2
                    asked.setdefault(middle, {})[tp] = self.at[tp][first]
                    halves += [(tp, first, middle), (tp, middle, last)]
            if asked:
                self._ask(asked)
            gaps = halves

    def _ask(self, numbers: Mapping[int, Mapping[TopicPartition, int]]) -> None:
        """Look up partitions at the times with these numbers: each with an offset from earlier, in place of none."""
        lookups = [dict.fromkeys(earlier, self._times[number]) for number, earlier in numbers.items()]
        found_each = self._admin.lookups("looking up offsets of times", lookups)
        for (number, earlier), found in zip(numbers.items(), found_each, strict=True):
            for tp, offset in earlier.items():
                # A record may have come since the end was looked up.
                at = min(offset_in(found, tp, self._logs[tp].end), self._logs[tp].end)
                self.at[tp][number] = at if tp in found else offset
