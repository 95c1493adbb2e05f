"""Spark's filters as less to read: topics, partitions and offsets that no row which passes can have are left out.

Every record timestamp is whole milliseconds, but they come in any order: producers set them. So a lower bound of the
timestamp starts the read at the first record that is as new (records before it are all older), and an upper bound
ends it nowhere: an older record may always follow.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from spark_kafka_group.errors import BrokerError
from spark_kafka_group.values.offsets import OffsetRange, TopicPartition

log = logging.getLogger(__name__)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
COMPARISONS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: lambda value, other: bool(value == other),
    GreaterThan: lambda value, other: bool(value > other),
    GreaterThanOrEqual: lambda value, other: bool(value >= other),
    LessThan: lambda value, other: bool(value < other),
    LessThanOrEqual: lambda value, other: bool(value <= other),
    StringStartsWith: lambda value, other: bool(value.startswith(other)),
    StringEndsWith: lambda value, other: bool(value.endswith(other)),
    StringContains: lambda value, other: other in value,
}
SHOWN_VALUES = 5
NEVER_NULL = (("topic",), ("partition",), ("offset",))
OF_TEXT_ONLY = (StringStartsWith, StringEndsWith, StringContains)

OffsetsAt = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int | None]]
"""First offset whose record has a timestamp (ms) or a later one, of each partition; None where there is none."""


@dataclass(frozen=True)
class ValueInterval:
    """Whole numbers from `low` to `high`, both included; None is no bound."""

    low: int | None = None
    high: int | None = None

    @property
    def empty(self) -> bool:
        """Whether no number is in it."""
        return self.low is not None and self.high is not None and self.low > self.high

    def __and__(self, other: ValueInterval) -> ValueInterval:
        lows = [low for low in (self.low, other.low) if low is not None]
        highs = [high for high in (self.high, other.high) if high is not None]
        return ValueInterval(max(lows, default=None), min(highs, default=None))


NOTHING = ValueInterval(0, -1)


@dataclass(frozen=True)
class Constraints:
    """Conditions that a record must meet for its row to pass the filters. `filters`: those that say something here, as
    Spark gave them. `topic`, `partition`: filters that a topic's name and a partition's number must pass.
    `timestamp_ms`: in milliseconds since 1970."""

    filters: tuple[Filter, ...] = ()
    topic: tuple[Filter, ...] = ()
    partition: tuple[Filter, ...] = ()
    offset: ValueInterval = ValueInterval()
    timestamp_ms: ValueInterval = ValueInterval()

    @property
    def contradictory(self) -> bool:
        """Whether no record at all can pass."""
        return self.offset.empty or self.timestamp_ms.empty

    def includes(self, tp: TopicPartition) -> bool:
        """Whether records of a partition can pass."""
        return all(holds(f, tp.topic) for f in self.topic) and all(holds(f, tp.partition) for f in self.partition)


def understood(filters: Iterable[Filter]) -> tuple[Constraints, list[Filter]]:
    """`filters`, all of which a row must pass, as constraints on the records to read; and the filters that Spark still
    has to evaluate on the rows: those not understood, or not wholly kept by the constraints."""
    constraints, left = Constraints(), []
    for one in filters:
        narrower, exact = _constrained(constraints, one)
        if narrower is not constraints:
            constraints = replace(narrower, filters=(*narrower.filters, one))
        if not exact:
            left.append(one)
    return constraints, left


def narrow(ranges: Collection[OffsetRange], constraints: Constraints, offsets_at: OffsetsAt) -> list[OffsetRange]:
    """The parts of `ranges` that can have records which pass; empty ones are left out. `offsets_at`: asked at most
    once; if it fails with BrokerError, timestamps narrow nothing."""
    if not constraints.filters:
        return list(ranges)
    possible = [] if constraints.contradictory else [r for r in ranges if constraints.includes(r.tp)]
    cut = [r for r in (_cut(r, constraints.offset) for r in possible) if r.size > 0]
    kept = _as_new(cut, constraints.timestamp_ms.low, offsets_at)
    log.info(
        "pushed filters %s: %d of %d offsets in %d of %d partitions are read: %s",
        ", ".join(map(describe, constraints.filters)),
        sum(r.size for r in kept), sum(r.size for r in ranges), len(kept), len(ranges), " ".join(map(str, kept)),
    )  # fmt: skip
    return kept


def _cut(r: OffsetRange, offset: ValueInterval) -> OffsetRange:
    start = r.start if offset.low is None else max(r.start, offset.low)
    end = r.end if offset.high is None else min(r.end, offset.high + 1)
    return OffsetRange(r.tp, start, max(start, end))


def _as_new(ranges: Sequence[OffsetRange], since_ms: int | None, offsets_at: OffsetsAt) -> list[OffsetRange]:
    """Without the records before the first one that is as new as `since_ms`."""
    # Negative numbers mean something else to Kafka; and 0 is before every record that has a timestamp.
    if since_ms is None or since_ms <= 0 or not ranges:
        return list(ranges)
    try:
        first = offsets_at({r.tp: since_ms for r in ranges})
    except BrokerError as error:
        log.warning("a filter on timestamp has no effect on the ranges that are read: %s", error)
        return list(ranges)
    started = [
        _started(r, first[r.tp]) if r.tp in first else r for r in ranges
    ]  # a partition that is not there was deleted
    return [r for r in started if r.size > 0]


def _started(r: OffsetRange, first: int | None) -> OffsetRange:
    """Without records before the `first` one that is as new; None where no record is."""
    return r._replace(start=r.end if first is None else max(r.start, first))


def _constrained(constraints: Constraints, one: Filter) -> tuple[Constraints, bool]:
    """`constraints` and what `one` adds, and whether every row within the result passes it."""
    of = one.child if isinstance(one, Not) else one
    column = getattr(of, "attribute", None)
    if isinstance(one, IsNotNull) and column in NEVER_NULL:
        return constraints, True
    if column == ("topic",) and _compares(of, str):
        return replace(constraints, topic=(*constraints.topic, one)), True
    if column == ("partition",) and _compares(of, int):
        return replace(constraints, partition=(*constraints.partition, one)), True
    return _bounded(constraints, one, of)


def _bounded(constraints: Constraints, one: Filter, of: Filter) -> tuple[Constraints, bool]:
    """As :func:`_constrained`, for filters on columns that have intervals; `of` is `one`, without its ``Not``."""
    column = getattr(of, "attribute", None)
    if column == ("offset",) and _compares(of, int):
        interval, exact = _interval(one, lambda offset: offset)
        return _with(constraints, offset=interval), exact
    if column == ("timestamp",) and _compares(of, datetime):
        interval, _ = _interval(one, lambda time: (time - EPOCH) // MICROSECOND)
        return _with(constraints, timestamp_ms=interval and _whole_ms(interval)), False
    return constraints, False


def _with(constraints: Constraints, **more: ValueInterval | None) -> Constraints:
    """`constraints` within `more` intervals; the very same ones where there are none."""
    narrower = {name: getattr(constraints, name) & interval for name, interval in more.items() if interval is not None}
    return replace(constraints, **narrower) if narrower else constraints


def _compares(one: Filter, kind: type) -> bool:
    """Whether `one` compares a column of that kind with values of that kind, or with null."""
    if isinstance(one, IsNull | IsNotNull) or (isinstance(one, EqualNullSafe) and one.value is None):
        return kind is not datetime  # the other three columns are never null, and that is how these are evaluated
    if type(one) in OF_TEXT_ONLY and kind is not str:
        return False
    values = one.value if isinstance(one, In) else [getattr(one, "value", EPOCH)]
    known = type(one) in COMPARISONS or isinstance(one, EqualNullSafe | In)
    return known and all(value is None or _is(value, kind) for value in values)


def _is(value: object, kind: type) -> bool:
    if isinstance(value, datetime):
        return kind is datetime and value.utcoffset() is not None
    return isinstance(value, kind) and not isinstance(value, bool)


def holds(one: Filter, value: str | int) -> bool | None:
    """Whether a topic's name or a partition's number passes; None is SQL's null, which does not."""
    if isinstance(one, Not):
        held = holds(one.child, value)
        return None if held is None else not held
    if isinstance(one, IsNull | IsNotNull):
        return isinstance(one, IsNotNull)
    if isinstance(one, EqualNullSafe):
        return bool(value == one.value)
    if isinstance(one, In):
        return True if value in one.value else None if None in one.value else False
    other = getattr(one, "value")  # noqa: B009 - all that is left have one, and no class in common that says so
    return None if other is None else COMPARISONS[type(one)](value, other)


def _interval(one: Filter, number: Callable[[Any], int]) -> tuple[ValueInterval | None, bool]:
    """Where numbers that pass are, None if anywhere, and whether all that are there pass."""
    if isinstance(one, Not):
        return None, False
    if isinstance(one, IsNull | IsNotNull):
        return (NOTHING, True) if isinstance(one, IsNull) else (None, True)
    values = one.value if isinstance(one, In) else [getattr(one, "value")]  # noqa: B009
    numbers = {number(value) for value in values if value is not None}
    if not numbers:
        return NOTHING, True
    low, high = min(numbers), max(numbers)
    if isinstance(one, In):
        return ValueInterval(low, high), len(numbers) == high - low + 1
    bounds: dict[type[Filter], ValueInterval] = {
        GreaterThan: ValueInterval(low + 1, None),
        GreaterThanOrEqual: ValueInterval(low, None),
        LessThan: ValueInterval(None, high - 1),
        LessThanOrEqual: ValueInterval(None, high),
    }
    return bounds.get(type(one), ValueInterval(low, high)), True


def _whole_ms(microseconds: ValueInterval) -> ValueInterval:
    low, high = microseconds.low, microseconds.high
    return ValueInterval(None if low is None else -(-low // 1000), None if high is None else high // 1000)


def describe(one: Filter) -> str:
    """A filter in a line of the log, as ``GreaterThan(offset, 5)``."""
    if isinstance(one, Not):
        return f"Not({describe(one.child)})"
    column = ".".join(getattr(one, "attribute", ()))
    if not hasattr(one, "value"):
        return f"{type(one).__name__}({column})"
    value = one.value
    if isinstance(one, In) and len(value) > SHOWN_VALUES:
        return f"In({column}, {len(value)} values)"
    return f"{type(one).__name__}({column}, {value})"
