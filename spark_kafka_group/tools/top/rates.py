"""Looks at groups from outside, in a thread of their own: lag, records per second, time until a group has caught up."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from spark_kafka_group.errors import GroupKafkaError
from spark_kafka_group.tools.coordinators import groups_not_shown
from spark_kafka_group.tools.describe import PartitionRow, look_without_generation
from spark_kafka_group.values.commit_metadata import Writer, writer_of
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.admin import GroupAdmin
from spark_kafka_group.wire.group.all_groups import GroupOffsets
from spark_kafka_group.wire.group.membership import Committed

OVER_S = 30.0
"""Rates are means of the last half minute: a query commits once in each micro-batch."""


@dataclass(frozen=True)
class GroupLook:
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
class RateRow:
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


def kept(looks: tuple[GroupLook, ...], newest: GroupLook) -> tuple[GroupLook, ...]:
    """Looks for the next rates: those of the last half minute, at least two."""
    all_looks = (*looks, newest)
    recent = tuple(look for look in all_looks if newest.at_s - look.at_s <= OVER_S)
    return recent if len(recent) > 1 else all_looks[-2:]


def group_rows(looks: tuple[GroupLook, ...]) -> list[RateRow]:
    """All groups of the newest look."""
    now = looks[-1]
    return [_group_row(looks, name, group, now.ends) for name, group in now.groups.items()]


def partition_rows(looks: tuple[GroupLook, ...], group: str) -> list[TopicPartitionRow]:
    """The partitions of a group in the newest look."""
    return [TopicPartitionRow(row, _speed(looks, group, (row.tp,))) for row in looks[-1].partitions]


def _group_row(
    looks: tuple[GroupLook, ...], name: str, group: GroupOffsets, ends: Mapping[TopicPartition, int]
) -> RateRow:
    lags = [max(0, ends[tp] - committed.offset) for tp, committed in group.committed.items() if tp in ends]
    writers = [writer for c in group.committed.values() if (writer := writer_of(c.metadata)) is not None]
    return RateRow(
        name, group.state, group.members, len(group.committed), sum(lags) if lags else None,
        _speed(looks, name, group.committed),
        max(writers, key=lambda w: (w.generation, -1 if w.batch is None else w.batch), default=None),
    )  # fmt: skip


def _speed(looks: tuple[GroupLook, ...], name: str, tps: Collection[TopicPartition]) -> Speed:
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


def looking_at(group: str | None) -> Callable[[GroupAdmin], GroupLook]:
    """A look at all groups, or at one.

    Raises
    ------
    ToolError
        When the one group does not exist, or is not one of consumers.
    BrokerError
    """
    return all_groups if group is None else lambda admin: one_group(admin, group)


def all_groups(admin: GroupAdmin) -> GroupLook:
    """All groups of consumers, with the ends of the logs that they have committed."""
    groups = admin.group_offsets()
    ends = admin.log_ends(sorted({tp for group in groups.values() for tp in group.committed}))
    return GroupLook(time.monotonic(), groups, ends, problem=groups_not_shown(admin))


def one_group(admin: GroupAdmin, group: str) -> GroupLook:
    """A group with its partitions."""
    report = look_without_generation(admin, group, time.time)
    rows = report.partitions
    committed = {row.tp: Committed(row.current_offset, "") for row in rows if row.current_offset is not None}
    offsets = GroupOffsets(report.state, len(report.members), committed)
    ends = {row.tp: row.log_end_offset for row in rows if row.log_end_offset is not None}
    return GroupLook(time.monotonic(), {group: offsets}, ends, rows, report.problem)


CLOSED_WITHIN_S = 1.0


@dataclass(frozen=True)
class SeenGroups:
    """The looks that rates are made of, the newest last, its time of day, and why there is no newer one."""

    looks: tuple[GroupLook, ...]
    at: float
    problem: str | None = None


class Observer:
    """Looks again and again, in a thread of its own.

    Parameters
    ----------
    look
        Asks the brokers.
    first
        A look that was made before.
    seen
        Called after each look, in the thread.
    """

    def __init__(
        self, look: Callable[[], GroupLook], first: GroupLook, interval_s: float, seen: Callable[[], None]
    ) -> None:
        self.seen = SeenGroups((first,), time.time())
        self._look, self._interval_s, self._tell = look, interval_s, seen
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="groupkafka-top", daemon=True)
        self._thread.start()

    def close(self) -> bool:
        """End; whether the thread has ended, which may wait for brokers."""
        self._ending.set()
        self._thread.join(CLOSED_WITHIN_S)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._ending.wait(self._interval_s):
            try:
                self.seen = look_again(self.seen, self._look)
            except Exception as error:  # noqa: BLE001 - or the view would say that no broker answers
                self.seen = replace(self.seen, problem=f"{type(error).__name__}: {error}")
            self._tell()


def look_again(before: SeenGroups, look: Callable[[], GroupLook]) -> SeenGroups:
    """A newer look, or what was seen before with the reason that there is none."""
    try:
        newest = look()
    except GroupKafkaError as error:
        return SeenGroups(before.looks, before.at, str(error))
    return SeenGroups(kept(before.looks, newest), time.time())
