"""Records of retry topics before they are due: no micro-batch has them.

A record of ``orders-retry-60000`` is due a minute after its timestamp. A range ends before its partition's first record
that is not, so later records wait for it. That answer holds until the record is due, also if others are appended; so
brokers are not asked again before.

The order of the two lookups matters:

1. The end of the log is looked up.
2. A record comes.
3. ListOffsets is asked for the first record with a timestamp above now - delay. The answer is the record of step 2, or
   none. Either is at or after that end, so all records before the end are due.

The other way round, the record would be below the end and not below the answer, and would be read too early.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from spark_kafka_group.values.offsets import OffsetAndTimestamp, OffsetRange, TopicPartition
from spark_kafka_group.values.retry_topics import delay_of

LookUp = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, OffsetAndTimestamp | None]]
"""From timestamps to the first records that are as new, None where there is none; partitions may be missing."""


def now_ms() -> int:
    """Milliseconds since the epoch, as records have them."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class _KnownTimes:
    """All records before `offset` are due; the one at `offset` is due at `due_ms`, where that is known."""

    offset: int
    due_ms: int | None = None

    def holds(self, end: int, now: int) -> bool:
        """Whether it still is the whole answer for a range that ends there."""
        if self.due_ms is None:
            return end == self.offset
        return end > self.offset and now < self.due_ms  # an end before it is that of another log, or of a cut one


class RetryDelays:
    """Cuts ranges of retry topics to the records that are due. Records of other topics always are. `delays_ms`: those
    of option retryTopics. `look_up`: asks brokers; not called where earlier answers hold. `clock_ms`: milliseconds
    since the epoch."""

    def __init__(self, delays_ms: Collection[int], look_up: LookUp, clock_ms: Callable[[], int] = now_ms) -> None:
        self._delays_ms = delays_ms
        self._look_up = look_up
        self._clock_ms = clock_ms
        self._known: dict[TopicPartition, _KnownTimes] = {}
        self._delay_of: dict[str, int] = {}  # as partitions are many and triggers frequent

    def due(self, ranges: Collection[OffsetRange]) -> list[OffsetRange]:
        """`ranges`, whose ends have been looked up, cut to the records that are due now. Raises BrokerError."""
        if not self._delays_ms:
            return list(ranges)
        now = self._clock_ms()
        ends = {r.tp: r.end for r in ranges if r.size > 0 and self._delay_ms(r.tp)}
        self._known = {tp: known for tp, known in self._known.items() if tp in ends and known.holds(ends[tp], now)}
        times = {tp: max(0, now - self._delay_ms(tp) + 1) for tp in ends if tp not in self._known}
        found = self._look_up(times) if times else {}
        self._known |= {tp: self._first_undue(tp, ends[tp], record) for tp, record in found.items()}
        return self.due_as_known(ranges)

    def due_as_known(self, ranges: Collection[OffsetRange]) -> list[OffsetRange]:
        """As :meth:`due`, by the answers it has had; without an answer no record is due."""
        return [self._cut(r) for r in ranges]

    def forget(self, tps: Collection[TopicPartition]) -> None:
        """Look these partitions up again: their positions were moved, or their logs were replaced."""
        self._known = {tp: known for tp, known in self._known.items() if tp not in tps}

    def passed(self) -> bool:
        """Whether a record that :meth:`due` has left out last is due by now."""
        return self._clock_ms() >= self._next_ms()

    def left_s(self) -> float:
        """Seconds until one is; infinity if it has left out none."""
        return max(0.0, (self._next_ms() - self._clock_ms()) / 1000)

    def _next_ms(self) -> float:
        return min((known.due_ms for known in self._known.values() if known.due_ms is not None), default=math.inf)

    def _delay_ms(self, tp: TopicPartition) -> int:
        """How long records wait; 0 where that is not a retry topic."""
        delay_ms = self._delay_of.get(tp.topic)
        if delay_ms is None:
            delay_ms = self._delay_of[tp.topic] = delay_of(tp.topic, self._delays_ms) or 0
        return delay_ms

    def _first_undue(self, tp: TopicPartition, end: int, record: OffsetAndTimestamp | None) -> _KnownTimes:
        if record is None or record.offset >= end:
            return _KnownTimes(end)
        return _KnownTimes(record.offset, record.timestamp_ms + self._delay_ms(tp))

    def _cut(self, r: OffsetRange) -> OffsetRange:
        if r.size <= 0 or not self._delay_ms(r.tp):
            return r
        known = self._known.get(r.tp)
        return r._replace(end=r.start if known is None else max(r.start, min(r.end, known.offset)))
