"""``top``: all groups, or one, with their rates, again and again."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spark_kafka_group.text.text_table import GAP, counted, duration, narrowed, shown, taken
from spark_kafka_group.tools.admin_connection import connect
from spark_kafka_group.tools.arguments import (
    Commands,
    add_cluster_arguments,
    add_command,
    end_at_ctrl_c,
    group_name,
    seconds,
)
from spark_kafka_group.tools.coordinators import groups_not_shown
from spark_kafka_group.tools.describe import PartitionRow, behind, facts_of_one, look_without_generation
from spark_kafka_group.tools.formatting import instant, query_and_batch, table
from spark_kafka_group.tools.live_view import LEAST_OF_NAMES, LiveView, ShownGroups, watch
from spark_kafka_group.values.commit_metadata import Writer, writer_of
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.admin import GroupAdmin
from spark_kafka_group.wire.group.all_groups import GroupOffsets
from spark_kafka_group.wire.group.membership import Committed

SUMMARY = "watch lag and rates of all groups, or of one by topic-partition"
DESCRIPTION = """\
Shows groups with their lag in records, and refreshes in place:

  COMMIT/S   records that the group committed a second, mean of the last 30 s
  NEW/S      records that producers wrote a second to the partitions it commits
  DONE-IN    time until the lag is worked off at these rates; never, if it does
             not get less; - if that is not known yet
  QUERY      reader id of the query of this package that committed; with --group
             and its batch
  LAG-S      with --group: age of the first record that is not committed, in
             seconds

On a terminal: l, r and g sort by lag, rate and group; arrows and page keys move
the rows; q or Ctrl-C ends it. Elsewhere, and with --once or --json, it prints a
table each interval, after the first interval. It joins no group and commits
nothing.
"""
EVERY_S = 2.0
SORTS = ("lag", "rate", "group")


def add_to(commands: Commands) -> None:
    parser = add_command(commands, "top", SUMMARY, DESCRIPTION)
    add_cluster_arguments(parser)
    parser.add_argument(
        "--group", type=group_name, metavar="GROUP", help="one group, by its group.id, with its topic-partitions"
    )
    parser.add_argument("--sort", choices=SORTS, default=SORTS[0], help="order of the rows (default: %(default)s)")
    parser.add_argument(
        "--interval", type=seconds, default=EVERY_S, metavar="SECONDS",
        help="time between two looks (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--once", action="store_true", help="print one table, after an interval, and end")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Show groups until the end is asked for; returns the exit code."""
    end_at_ctrl_c()
    with connect(args) as admin:

        def look(before: tuple[GroupLook, ...] | None) -> tuple[GroupLook, ...]:
            newest = all_groups(admin) if args.group is None else one_group(admin, args.group)
            return kept(before or (), newest)

        shown = of_groups if args.group is None else of_partitions
        return watch(LiveView(look, shown, args.interval, args.sort, SORTS, unprinted=1, once=args.once), args)


OVER_S = 30.0  # rates are means of the last half minute: a query commits once in each micro-batch


@dataclass(frozen=True)
class GroupLook:
    """Groups and ends of logs at one moment; of a single group also its partitions."""

    at_s: float  # the moment by a clock that is never set
    groups: Mapping[str, GroupOffsets]
    ends: Mapping[TopicPartition, int]
    partitions: tuple[PartitionRow, ...] = ()
    problem: str | None = None  # which facts are missing, and why


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
    The writer is the one of the newest commit that names one."""

    group: str
    state: str
    members: int
    partitions: int
    lag: int | None
    speed: Speed
    writer: Writer | None


def kept(looks: tuple[GroupLook, ...], newest: GroupLook) -> tuple[GroupLook, ...]:
    """Looks for the next rates: those of the last half minute, at least two."""
    all_looks = (*looks, newest)
    recent = tuple(look for look in all_looks if newest.at_s - look.at_s <= OVER_S)
    return recent if len(recent) > 1 else all_looks[-2:]


def group_rows(looks: tuple[GroupLook, ...]) -> list[RateRow]:
    now = looks[-1]
    rows = []
    for name, group in now.groups.items():
        lags = [max(0, now.ends[tp] - commit.offset) for tp, commit in group.committed.items() if tp in now.ends]
        writers = [writer for c in group.committed.values() if (writer := writer_of(c.metadata)) is not None]
        newest = max(writers, key=lambda w: (w.generation, -1 if w.batch is None else w.batch), default=None)
        rows.append(RateRow(name, group.state, group.members, len(group.committed), sum(lags) if lags else None,
                            _speed(looks, name, group.committed), newest))  # fmt: skip
    return rows


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


def all_groups(admin: GroupAdmin) -> GroupLook:
    """All groups of consumers, with the ends of the logs that they have committed."""
    groups = admin.group_offsets()
    ends = admin.log_ends(sorted({tp for group in groups.values() for tp in group.committed}))
    return GroupLook(time.monotonic(), groups, ends, problem=groups_not_shown(admin))


def one_group(admin: GroupAdmin, group: str) -> GroupLook:
    report = look_without_generation(admin, group, time.time)
    rows = report.partitions
    committed = {row.tp: Committed(row.current_offset, "") for row in rows if row.current_offset is not None}
    offsets = GroupOffsets(report.state, len(report.members), committed)
    ends = {row.tp: row.log_end_offset for row in rows if row.log_end_offset is not None}
    return GroupLook(time.monotonic(), {group: offsets}, ends, rows, report.problem)


UNITS = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"))
GROUP_HEADERS = ("GROUP", "STATE", "MEMBERS", "LAG", "COMMIT/S", "NEW/S", "DONE-IN", "QUERY")
LAG_S, BEHIND = "LAG-S", "BEHIND"
PARTITION_HEADERS = ("TOPIC", "PART", "LAG", LAG_S, "COMMIT/S", "NEW/S", "DONE-IN", "MEMBER", "QUERY")


@dataclass(frozen=True)
class GroupsTable(ShownGroups):
    """Rows in order, below a summary."""

    headers: Sequence[str]
    cells: tuple[tuple[Any, ...], ...]

    def for_screen(self, width: int) -> tuple[str, list[str]]:
        """Large numbers and times are short."""
        if LAG_S in self.headers:
            return self._with_durations(self.headers.index(LAG_S)).for_screen(width)
        count = len(self.headers)
        while count > 1 and self._least(count) > width:
            count -= 1
        rows = [row[:count] for row in self.cells]
        head, *lines = narrowed(self.headers[:count], rows, width, brief).split("\n")
        return head, lines

    def as_text(self, at: float) -> str:
        """Summary, header and rows with all digits."""
        return f"{instant(at * 1000)}  {self.heading(sys.maxsize)}\n{table(self.headers, self.cells)}\n"

    def _with_durations(self, place: int) -> GroupsTable:
        headers = [*self.headers[:place], BEHIND, *self.headers[place + 1 :]]
        cells = tuple((*row[:place], duration(row[place]), *row[place + 1 :]) for row in self.cells)
        return replace(self, headers=headers, cells=cells)

    def _least(self, count: int) -> int:
        widths = (self._least_of(number) for number in range(count))
        return sum(widths) + len(GAP) * (count - 1)

    def _least_of(self, number: int) -> int:
        values = [row[number] for row in self.cells]
        width = max(taken(text) for text in (self.headers[number], *map(brief, values)))
        return min(width, LEAST_OF_NAMES) if any(isinstance(value, str) for value in values) else width


def of_groups(looks: tuple[GroupLook, ...], sort: str) -> GroupsTable:
    rows = sorted(group_rows(looks), key=lambda row: _place(sort, row.group, row.lag, row.speed))
    lag = behind((row.lag for row in rows), any(row.partitions for row in rows))
    facts = (counted(len(rows), "group"), counted(sum(row.members for row in rows), "member"), lag)
    return GroupsTable("", facts, (looks[-1].problem,), tuple(map(_group_object, rows)), GROUP_HEADERS,
                       tuple(map(_group_cells, rows)))  # fmt: skip


def of_partitions(looks: tuple[GroupLook, ...], sort: str) -> GroupsTable:
    now = looks[-1]
    ((name, group),) = now.groups.items()
    rows = [(row, _speed(looks, name, (row.tp,))) for row in now.partitions]
    rows.sort(key=lambda each: _place(sort, each[0].tp, each[0].lag, each[1]))
    facts = facts_of_one(group.state, group.members, now.partitions)
    return GroupsTable(name, facts, (now.problem,), tuple(_partition_object(name, *each) for each in rows),
                       PARTITION_HEADERS, tuple(_partition_cells(*each) for each in rows))  # fmt: skip


def brief(value: object) -> str:
    """A value in few characters: numbers from a million on with three digits."""
    if not isinstance(value, int | float):
        return shown(value)
    for unit, letter in UNITS:
        if value >= unit:
            return f"{math.floor(value / unit * 100) / 100:.2f}"[:4].rstrip(".") + letter
    return f"{value:,.0f}"


def _place(sort: str, name: Any, lag: int | None, speed: Speed) -> tuple[Any, ...]:
    """Rows sort by this: most first, unknown last, then by name."""
    by = {"lag": lag, "rate": speed.committed}.get(sort)
    return (-by if by is not None else 1, name) if sort != "group" else (name,)


def _group_cells(row: RateRow) -> tuple[object, ...]:
    speed = row.speed
    done = duration(speed.seconds_for(row.lag))
    return (row.group, row.state, row.members, row.lag, _rounded(speed.committed), _rounded(speed.produced), done,
            row.writer and row.writer.query_id)  # fmt: skip


def _partition_cells(row: PartitionRow, speed: Speed) -> tuple[object, ...]:
    done = duration(speed.seconds_for(row.lag))
    return (*row.tp, row.lag, _rounded(row.lag_s), _rounded(speed.committed), _rounded(speed.produced), done,
            row.owner and row.owner.name, row.note and query_and_batch(row.note))  # fmt: skip


def _group_object(row: RateRow) -> dict[str, Any]:
    return {"kind": "group", "group": row.group, "state": row.state, "members": row.members,
            "partitions": row.partitions, "lag": row.lag, **_of_speed(row.speed, row.lag),
            **_of_writer(row.writer)}  # fmt: skip


def _partition_object(group: str, row: PartitionRow, speed: Speed) -> dict[str, Any]:
    return {"kind": "partition", "group": group, **row.tp._asdict(), "lag": row.lag, "lag_seconds": row.lag_s,
            **_of_speed(speed, row.lag), "consumer_id": row.owner and row.owner.member_id,
            **_of_writer(row.note)}  # fmt: skip


def _of_speed(speed: Speed, lag: int | None) -> dict[str, float | None]:
    seconds = speed.seconds_for(lag)
    return {
        "committed_per_second": _rounded(speed.committed),
        "produced_per_second": _rounded(speed.produced),
        "seconds_to_end": None if seconds is None or math.isinf(seconds) else round(seconds, 1),
    }


def _of_writer(writer: Writer | None) -> dict[str, Any]:
    if writer is None:
        return {"reader": None, "generation": None, "batch": None}
    return {"reader": writer.query_id, "generation": writer.generation, "batch": writer.batch}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
