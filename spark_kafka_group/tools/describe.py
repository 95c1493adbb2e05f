"""``describe``: the members of a group, its lag, and the writers of its commits."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from spark_kafka_group.errors import BrokerError
from spark_kafka_group.text.text_table import NOTHING, counted, duration
from spark_kafka_group.tools import checkpoint, coordinators
from spark_kafka_group.tools.admin_connection import connect
from spark_kafka_group.tools.arguments import (
    Commands,
    ToolError,
    add_cluster_arguments,
    add_command,
    end_at_ctrl_c,
    group_name,
    seconds,
)
from spark_kafka_group.tools.coordinators import groups_not_shown, of_no_consumers, require_coordinator
from spark_kafka_group.tools.formatting import instant, partitions, sentence, table, written_by
from spark_kafka_group.tools.live_view import LiveView, ShownGroups, print_found, watch
from spark_kafka_group.values.commit_metadata import Writer, writer_of
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.admin import BrokerNode, GroupAdmin
from spark_kafka_group.wire.group.members import CLASSIC, CONSUMER, DescribedMember
from spark_kafka_group.wire.group.membership import Committed

SUMMARY = "show members, committed offsets and lag of a group, or of all groups"
DESCRIPTION = """\
Shows what kafka-consumer-groups --describe shows, with the same numbers, and:

  generation   the newest one in __consumer_offsets; - if there is none
  type         consumer where a member has Kafka's newer protocol (KIP-848); the
               group then has an epoch and the broker's assignor, in place of a
               generation and a strategy of the members
  EPOCH        of a member of such a group: below the group's while it has not
               taken part in the rebalance, for example as a micro-batch runs
  LAG-SECONDS  age of the first record that is not committed: now minus its
               timestamp, which the producer sets unless the topic has
               LogAppendTime; 0 without lag, - without a commit. On a terminal
               it is BEHIND, in its two largest units: 2h05m
  POSITION     with --checkpoint: where the query's newest batch ends, committed
               or not; Kafka itself does not know it
  WRITTEN-BY   reader id, generation and batch of the query that committed, from
               the commit's note; - if the commit has no note

On a terminal, rows that are too wide are folded, and ids are shortened in the
middle. A second line that would repeat the one above is left out, and so is
POSITION without --checkpoint. Through a pipe each row is one whole line. With
--watch a terminal is refreshed in place; arrows and page keys move the lines,
and q or Ctrl-C ends it.
"""

WATCHED_EVERY_S = 2.0
MOST_NAMED = 10


@dataclass(frozen=True)
class PartitionRow:
    """A partition of the group; None is unknown: without a commit, a log, an owner."""

    tp: TopicPartition
    current_offset: int | None
    log_end_offset: int | None
    lag: int | None
    lag_s: float | None
    position: int | None
    owner: DescribedMember | None
    note: Writer | None


def behind(lags: Iterable[int | None], committed: bool, unit: str = "") -> str:
    """``7 behind``, with the `unit` after the number. A commit beyond the end of a log takes nothing from other lags. A
    lag that is not known at all is not 0: no log of what was `committed` has a leader, or nothing was."""
    known = [max(0, lag) for lag in lags if lag is not None]
    if not known:
        return "lag not known" if committed else "nothing committed"
    return f"{sum(known):,}{unit} behind"


def how_far_behind(rows: Collection[PartitionRow], unit: str = "") -> str:
    return behind((row.lag for row in rows), any(row.current_offset is not None for row in rows), unit)


def facts_of_one(state: str, members: int, rows: Sequence[PartitionRow]) -> tuple[str, ...]:
    """A group in a few words; the lag is the last."""
    unknown = sum(row.lag is None for row in rows)
    remark = f", {unknown:,} of {len(rows):,} partitions not known" if 0 < unknown < len(rows) else ""
    return state, counted(members, "member"), how_far_behind(rows) + remark


@dataclass(frozen=True)
class GroupReport:
    """A group at one moment; the problem names facts that are missing, for example for want of a right."""

    group: str
    state: str
    coordinator: BrokerNode
    generation: int | None
    strategy: str
    members: tuple[DescribedMember, ...]
    partitions: tuple[PartitionRow, ...]
    problem: str | None = None
    kind: str = CLASSIC


def add_to(commands: Commands) -> None:
    parser = add_command(commands, "describe", SUMMARY, DESCRIPTION)
    add_cluster_arguments(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--group", type=group_name, metavar="GROUP", help="the consumer group, by its group.id (default: all groups)"
    )
    which.add_argument("--all-groups", action="store_true", help="all consumer groups, as without --group")
    parser.add_argument(
        "--watch",
        nargs="?",
        type=seconds,
        const=WATCHED_EVERY_S,
        metavar="SECONDS",
        help="show it again every SECONDS until Ctrl-C (default: %(const)s)",
    )
    parser.add_argument(
        "--checkpoint",
        type=Path,
        action="append",
        default=[],
        metavar="DIRECTORY",
        help="checkpoint of a query in the group, for POSITION; may be repeated",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    checkpoint.positions(args.checkpoint)  # a checkpoint that cannot be read is an error without any connection
    if args.watch is not None:
        end_at_ctrl_c()
    with connect(args) as admin:

        def reports(before: object) -> Reports:
            positions = checkpoint.positions(args.checkpoint)
            if args.group is None:
                return of_all_groups(admin, time.time, positions)
            return of_one_group(look(admin, args.group, time.time, positions))

        if args.watch is not None:
            return watch(LiveView(reports, lambda found, sort: found, args.watch), args)
        found = reports(None)
        print_found(found.as_json() if args.json else found.text(), found.problems, args)
    return 0


@dataclass(frozen=True)
class Reports(ShownGroups):
    """Groups at one moment, one below the other."""

    reports: tuple[GroupReport, ...]

    def for_screen(self, width: int) -> tuple[str, list[str]]:
        return "", self.text().split("\n")

    def as_text(self, at: float) -> str:
        return f"{instant(at * 1000)}\n\n{self.text()}"

    def text(self) -> str:
        """As :meth:`as_text`, without the time of day."""
        return "\n\n\n".join(map(as_text, self.reports)) or "the cluster has no consumer groups"


def of_one_group(report: GroupReport) -> Reports:
    facts = facts_of_one(report.state, len(report.members), report.partitions)
    return Reports(report.group, facts, (report.problem,), tuple(objects(report)), (report,))


def of_all_groups(
    admin: GroupAdmin, clock: Callable[[], float], positions: checkpoint.Positions | None = None
) -> Reports:
    """All groups of consumers as they are now, by name, without those that go meanwhile. Raises BrokerError."""
    looked, failed = [], []
    for name, kind in sorted(admin.groups().items()):
        if kind in (CLASSIC, CONSUMER):
            # Of another protocol type, as Kafka Connect's workers, or gone since it was listed.
            with contextlib.suppress(ToolError):
                try:
                    looked.append(look_without_generation(admin, name, clock, positions))
                except BrokerError as error:
                    failed.append(f"group {name} cannot be shown: {error}")
    reports = _with_generations(admin, looked)
    rows = [row for report in reports for row in report.partitions]
    members = sum(len(report.members) for report in reports)
    facts = (counted(len(reports), "group"), counted(members, "member"), how_far_behind(rows))
    problems = (*(report.problem for report in reports), groups_not_shown(admin), *failed)
    return Reports("", facts, problems, tuple(each for r in reports for each in objects(r)), tuple(reports))


def look(
    admin: GroupAdmin, group: str, clock: Callable[[], float], positions: checkpoint.Positions | None = None
) -> GroupReport:
    """A group as it is now; `positions` are those of its queries, where they are known. Raises ToolError when the group
    does not exist, has no coordinator, or is not one of consumers. Raises BrokerError."""
    require_coordinator(admin, group)
    (report,) = _with_generations(admin, [look_without_generation(admin, group, clock, positions)])
    return report


def look_without_generation(
    admin: GroupAdmin, group: str, clock: Callable[[], float], positions: checkpoint.Positions | None = None
) -> GroupReport:
    """As :func:`look`, without what takes a read of the offsets topic: the generation of a classic group is None."""
    described = admin.describe(group)
    if described.use != CONSUMER:
        raise ToolError(of_no_consumers(group, described.use, "--describe"))
    committed = admin.committed(group)
    if described.state == "Dead" and not committed:
        raise ToolError(_no_such_group(group, admin.groups()))
    members = tuple(sorted(described.members, key=lambda member: member.member_id))
    unreadable = [member.member_id for member in described.members if member.assigned is None]
    problem = None
    if unreadable:
        problem = (
            f"partitions of members that do not assign as Kafka's consumers do are not known: {', '.join(unreadable)}"
        )
    owners = {tp: member for member in members for tp in member.assigned or ()}
    rows = _partition_rows(admin, committed, owners, checkpoint.of_group(positions or {}, group), clock)
    coordinator = admin.coordinator(group)
    return GroupReport(group, described.state, coordinator, described.epoch, described.strategy, members, rows,
                       problem, described.kind)  # fmt: skip


def _no_such_group(group: str, groups: Mapping[str, str]) -> str:
    nearest = difflib.get_close_matches(group, groups, n=1)
    names = sorted(groups)
    if nearest:
        others = f"the nearest name is {nearest[0]}"
    elif len(names) > MOST_NAMED:
        others = f"the cluster has {len(names)} others, and describe without --group shows them"
    else:
        others = f"the cluster has {', '.join(names)}" if names else "the cluster has no groups"
    return f"there is no group {group}: {others}"


def _with_generations(admin: GroupAdmin, looked: Sequence[GroupReport]) -> list[GroupReport]:
    """Reports with the generations of classic groups, or why they are not known; newer groups have theirs."""
    found = coordinators.newest(admin, [report.group for report in looked if report.kind == CLASSIC])
    reports = []
    for report in looked:
        match found.get(report.group, report.generation):
            case BrokerError() as error:
                problems = filter(None, [report.problem, f"the generation is not known: {error}"])
                reports.append(replace(report, problem="; ".join(problems)))
            case generation:
                reports.append(replace(report, generation=generation))
    return reports


def _partition_rows(
    admin: GroupAdmin,
    committed: Mapping[TopicPartition, Committed],
    owners: Mapping[TopicPartition, DescribedMember],
    positions: Mapping[TopicPartition, int],
    clock: Callable[[], float],
) -> tuple[PartitionRow, ...]:
    tps = sorted({*committed, *owners})
    leaders = admin.leaders(sorted({tp.topic for tp in tps})) if tps else {}
    ranges = admin.log_ranges([tp for tp in tps if leaders.get(tp) is not None])
    ends = {tp: end for tp, (_, end) in ranges.items()}
    unread = {
        tp: first
        for tp, (start, end) in ranges.items()
        if tp in committed and (first := max(committed[tp].offset, start)) < end  # else records were deleted unread
    }
    oldest = admin.first_records(unread, ends)
    now_ms = clock() * 1000
    rows = []
    for tp in tps:
        commit, end = committed.get(tp), ends.get(tp)
        lag = None if commit is None or end is None else end - commit.offset
        lag_s = None if lag is None else 0.0  # caught up, or nothing but transactions' markers follows
        if tp in oldest:
            written_ms = oldest[tp].timestamp_ms
            lag_s = None if written_ms is None else round(max(0.0, now_ms - written_ms) / 1000, 3)
        current, writer = (commit.offset, writer_of(commit.metadata)) if commit is not None else (None, None)
        rows.append(PartitionRow(tp, current, end, lag, lag_s, positions.get(tp), owners.get(tp), writer))
    return tuple(rows)


def as_text(report: GroupReport) -> str:
    generation = NOTHING if report.generation is None else report.generation
    strategy = report.strategy or NOTHING
    facts = f"generation {generation}, strategy {strategy}"
    if report.kind == CONSUMER:
        facts = f"type {CONSUMER}, epoch {generation}, assignor {strategy}"
    parts = [sentence(f"group {report.group}: {report.state}, {facts}, coordinator {report.coordinator}")]
    if report.members:
        epochs = report.kind == CONSUMER
        columns = ("CONSUMER-ID", "INSTANCE-ID", "CLIENT-ID", "HOST", *(("PROTOCOL", "EPOCH") if epochs else ()),
                   "PARTITIONS")  # fmt: skip
        rows = [
            (m.member_id, m.instance_id, m.client_id, m.host, *((m.protocol, m.epoch) if epochs else ()),
             partitions(m.assigned or ()))
            for m in report.members
        ]  # fmt: skip
        parts.append(table(columns, rows))
    if report.partitions:
        seen = sys.stdout.isatty()
        headers = ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG",
                   "BEHIND" if seen else "LAG-SECONDS", "POSITION", "CONSUMER-ID", "WRITTEN-BY")  # fmt: skip
        lines = [
            (*row.tp, row.current_offset, row.log_end_offset, row.lag, duration(row.lag_s) if seen else row.lag_s,
             row.position, row.owner and row.owner.member_id, row.note and written_by(row.note, brief=seen))
            for row in report.partitions
        ]  # fmt: skip
        parts.append(table(headers, lines, may_lack={"POSITION"}))
    return "\n\n".join(parts)


def objects(report: GroupReport) -> list[dict[str, Any]]:
    """For JSON: the group, its members, and its partitions."""
    group = {"kind": "group", "group": report.group, "state": report.state, "coordinator": asdict(report.coordinator),
             "type": report.kind, "generation": report.generation, "strategy": report.strategy}  # fmt: skip
    members = [
        {"kind": "member", "member_id": m.member_id, "instance_id": m.instance_id, "client_id": m.client_id,
         "host": m.host, "assigned": sorted(m.assigned or ()), "protocol": m.protocol, "epoch": m.epoch}
        for m in report.members
    ]  # fmt: skip
    rows = [
        {"kind": "partition", **row.tp._asdict(), "current_offset": row.current_offset,
         "log_end_offset": row.log_end_offset, "lag": row.lag, "lag_seconds": row.lag_s, "position": row.position,
         "consumer_id": row.owner and row.owner.member_id, "host": row.owner and row.owner.host,
         "client_id": row.owner and row.owner.client_id, "note": row.note and row.note.to_json()}
        for row in report.partitions
    ]  # fmt: skip
    return [group, *members, *rows]
