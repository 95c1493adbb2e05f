"""Offsets of groups at two moments: lag, records per second, and the time until a group has caught up."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from spark_kafka_group.tools.describe import PartitionRow
from spark_kafka_group.values.commit_metadata import Writer, writer_of
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.group.all_groups import GroupOffsets

OVER_S = 30.0
"""Rates are means of the last half minute: a query commits once in each micro-batch."""


@dataclass(frozen=True)
class Look:
    """Groups and ends of logs at one moment; of a single group also its partitions.

    Attributes
    ----------
    at_s
        The moment by a clock that is never set.
    problem
        Which facts are missing, and why.
    """

    at_s: float
    groups: Mapping[str, GroupOffsets]
    ends: Mapping[TopicPartition, int]
    partitions: tuple[PartitionRow, ...] = ()
    problem: str | None = None


@dataclass(frozen=True)
class Speed:
    """Records in a second; None is unknown."""

    committed: float | None
    produced: float | None

    def seconds_for(self, lag: int | None) -> float | None:
        """The time until `lag` is worked off: infinite if it does not get less, None if that is not known."""
        if lag is not None and lag <= 0:
            return 0.0
        if lag is None or self.committed is None or self.produced is None:
            return None
        gain = self.committed - self.produced
        return lag / gain if gain > 0 else math.inf


@dataclass(frozen=True)
class GroupRow:
    """A group; the lag is in records, and None where that of no partition is known. A commit beyond the end has none.

    The writer is the one of the newest commit that names one.
    """

    group: str
    state: str
    members: int
    partitions: int
    lag: int | None
    speed: Speed
    writer: Writer | None


@dataclass(frozen=True)
class TopicPartitionRow:
    """A partition of a group."""

    seen: PartitionRow
    speed: Speed


def kept(looks: tuple[Look, ...], newest: Look) -> tuple[Look, ...]:
    """Looks for the next rates: those of the last half minute, at least two."""
    all_looks = (*looks, newest)
    recent = tuple(look for look in all_looks if newest.at_s - look.at_s <= OVER_S)
    return recent if len(recent) > 1 else all_looks[-2:]


def group_rows(looks: tuple[Look, ...]) -> list[GroupRow]:
    """All groups of the newest look."""
    now = looks[-1]
    return [_group_row(looks, name, group, now.ends) for name, group in now.groups.items()]


def partition_rows(looks: tuple[Look, ...], group: str) -> list[TopicPartitionRow]:
    """The partitions of a group in the newest look."""
    return [TopicPartitionRow(row, _speed(looks, group, (row.tp,))) for row in looks[-1].partitions]


def _group_row(looks: tuple[Look, ...], name: str, group: GroupOffsets, ends: Mapping[TopicPartition, int]) -> GroupRow:
    lags = [max(0, ends[tp] - committed.offset) for tp, committed in group.committed.items() if tp in ends]
    writers = [writer for c in group.committed.values() if (writer := writer_of(c.metadata)) is not None]
    return GroupRow(
        name, group.state, group.members, len(group.committed), sum(lags) if lags else None,
        _speed(looks, name, group.committed),
        max(writers, key=lambda w: (w.generation, -1 if w.batch is None else w.batch), default=None),
    )  # fmt: skip


def _speed(looks: tuple[Look, ...], name: str, tps: Collection[TopicPartition]) -> Speed:
    now = looks[-1]
    before = next(look for look in looks if name in look.groups or look is now)
    seconds = now.at_s - before.at_s
    if seconds <= 0 or name not in now.groups:
        return Speed(None, None)
    offsets = [({tp: c.offset for tp, c in look.groups[name].committed.items()}, look.ends) for look in (before, now)]
    committed, produced = (_passed(old, new, tps) for old, new in zip(*offsets, strict=True))
    return Speed(committed / seconds, produced / seconds)


def _passed(
    before: Mapping[TopicPartition, int], now: Mapping[TopicPartition, int], tps: Collection[TopicPartition]
) -> int:
    """Records between the offsets of two looks. A group that was set back has passed none."""
    return sum(max(0, now[tp] - before[tp]) for tp in tps if tp in before and tp in now)
