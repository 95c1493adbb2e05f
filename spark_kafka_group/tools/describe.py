"""``describe``: the members of a group, its lag, and the writers of its commits."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from spark_kafka_group.errors import BrokerError
from spark_kafka_group.text.foreign_text import printable
from spark_kafka_group.text.text_table import NOTHING, duration
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
from spark_kafka_group.values.commit_metadata import Writer, writer_of
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.admin import BrokerNode, GroupAdmin, LogRecord
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
POSITION without --checkpoint. Through a pipe each row is one whole line.
"""

WATCHED_EVERY_S = 2.0
CLEAR = "\x1b[H\x1b[2J\x1b[3J"
"""Empties a terminal and its memory of lines."""
MOST_NAMED = 10


@dataclass(frozen=True)
class MemberRow:
    """A member, and the partitions that it was assigned; its epoch is None in a classic group."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assigned: tuple[TopicPartition, ...]
    protocol: str | None = CLASSIC
    epoch: int | None = None


@dataclass(frozen=True)
class PartitionRow:
    """A partition of the group; None is unknown: without a commit, a log, an owner."""

    tp: TopicPartition
    current_offset: int | None
    log_end_offset: int | None
    lag: int | None
    lag_s: float | None
    position: int | None
    owner: MemberRow | None
    note: Writer | None


def records_behind(rows: Iterable[PartitionRow]) -> int:
    """Lag of all partitions whose lag is known; a commit beyond the end of a log takes nothing from the others."""
    return sum(max(0, row.lag or 0) for row in rows)


def behind(rows: Iterable[PartitionRow], unit: str = "") -> str:
    """``7 behind``, with the `unit` after the number. A lag that is not known at all is not taken for 0."""
    all_rows = list(rows)
    if all(row.lag is None for row in all_rows):
        return lag_not_known(any(row.current_offset is not None for row in all_rows))
    return f"{records_behind(all_rows):,}{unit} behind"


def lag_not_known(committed: bool) -> str:
    """Why there is no lag at all: no log of what was committed has a leader, or nothing was."""
    return "lag not known" if committed else "nothing committed"


@dataclass(frozen=True)
class GroupReport:
    """A group at one moment; the problem names facts that are missing, for example for want of a right."""

    group: str
    state: str
    coordinator: BrokerNode
    generation: int | None
    strategy: str
    members: tuple[MemberRow, ...]
    partitions: tuple[PartitionRow, ...]
    problem: str | None = None
    kind: str = CLASSIC


def add_to(commands: Commands) -> None:
    """Declare the command."""
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
    """Print a group, or all groups; again and again with --watch."""
    checkpoint.positions(args.checkpoint)  # a checkpoint that cannot be read is an error without any connection
    with connect(args) as admin:
        if args.watch is not None:
            end_at_ctrl_c()
        _print_reports(args, admin)
        while args.watch is not None:
            sys.stdout.flush()
            time.sleep(args.watch)
            _print_reports(args, admin)
    return 0


def _print_reports(args: argparse.Namespace, admin: GroupAdmin) -> None:
    positions = checkpoint.positions(args.checkpoint)
    if args.group is None:
        reports, failed = look_at_all(admin, time.time, positions)
        missing = "\n".join(filter(None, [groups_not_shown(admin), *failed]))
    else:
        reports, missing = [look(admin, args.group, time.time, positions)], ""
    if args.watch is not None and not args.json:
        print(f"{CLEAR if sys.stdout.isatty() else ''}{instant(time.time() * 1000)}\n")
    if args.json:
        for report in reports:
            print(as_json(report))
    else:
        print("\n\n\n".join(map(as_text, reports)) or "the cluster has no consumer groups")
    for problem in filter(None, (*(report.problem for report in reports), missing)):
        print(printable(problem), file=sys.stderr)


def look_at_all(
    admin: GroupAdmin, clock: Callable[[], float], positions: checkpoint.Positions | None = None
) -> tuple[list[GroupReport], list[str]]:
    """All groups of consumers as they are now, by name, and why some could not be looked at; without those that go
    meanwhile.

    Raises
    ------
    BrokerError
    """
    reports, failed = [], []
    for name, kind in sorted(admin.groups().items()):
        if kind in (CLASSIC, CONSUMER):
            # Of another protocol type, as Kafka Connect's workers, or gone since it was listed.
            with contextlib.suppress(ToolError):
                try:
                    reports.append(_looked_at(admin, name, clock, positions))
                except BrokerError as error:
                    failed.append(f"group {name} cannot be shown: {error}")
    return _with_generations(admin, reports), failed


def look(
    admin: GroupAdmin, group: str, clock: Callable[[], float], positions: checkpoint.Positions | None = None
) -> GroupReport:
    """A group as it is now; `positions` are those of its queries, where they are known.

    Raises
    ------
    ToolError
        When the group does not exist, has no coordinator, or is not one of consumers.
    BrokerError
    """
    require_coordinator(admin, group)
    (report,) = _with_generations(admin, [_looked_at(admin, group, clock, positions)])
    return report


def look_without_generation(admin: GroupAdmin, group: str, clock: Callable[[], float]) -> GroupReport:
    """As :func:`look`, without what takes a read of the offsets topic: the generation of a classic group is None."""
    return _looked_at(admin, group, clock, None)


def _looked_at(
    admin: GroupAdmin, group: str, clock: Callable[[], float], positions: checkpoint.Positions | None
) -> GroupReport:
    """A group without its generation."""
    described = admin.describe(group)
    if described.use != CONSUMER:
        raise ToolError(of_no_consumers(group, described.use, "--describe"))
    committed = admin.committed(group)
    if described.state == "Dead" and not committed:
        raise ToolError(_no_such_group(group, admin.groups()))
    members = tuple(sorted(map(_member_row, described.members), key=lambda m: m.member_id))
    unreadable = [member.member_id for member in described.members if member.assigned is None]
    problem = None
    if unreadable:
        problem = (
            f"partitions of members that do not assign as Kafka's consumers do are not known: {', '.join(unreadable)}"
        )
    owners = {tp: m for m in members for tp in m.assigned}
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


def _member_row(member: DescribedMember) -> MemberRow:
    assigned = tuple(sorted(member.assigned or ()))
    return MemberRow(member.member_id, member.instance_id, member.client_id, member.host, assigned,
                     member.protocol, member.epoch)  # fmt: skip


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
    owners: Mapping[TopicPartition, MemberRow],
    positions: Mapping[TopicPartition, int],
    clock: Callable[[], float],
) -> tuple[PartitionRow, ...]:
    tps = sorted(set(committed) | set(owners))
    ranges, oldest = _logs(admin, tps, committed)
    now_ms = clock() * 1000
    return tuple(
        _partition_row(tp, committed.get(tp), ranges.get(tp), oldest.get(tp), positions.get(tp), owners.get(tp), now_ms)
        for tp in tps
    )


def _logs(
    admin: GroupAdmin, tps: Sequence[TopicPartition], committed: Mapping[TopicPartition, Committed]
) -> tuple[dict[TopicPartition, tuple[int, int]], dict[TopicPartition, LogRecord]]:
    """Start and end of each log that has a leader, and the first record that the group has not read, if there is
    one."""
    leaders = admin.leaders(sorted({tp.topic for tp in tps})) if tps else {}
    ranges = admin.log_ranges([tp for tp in tps if leaders.get(tp) is not None])
    waiting = {
        tp: first
        for tp, (start, end) in ranges.items()
        if tp in committed and (first := max(committed[tp].offset, start)) < end  # else records were deleted unread
    }
    return ranges, admin.first_records(waiting, {tp: end for tp, (_, end) in ranges.items()})


def _partition_row(
    tp: TopicPartition,
    committed: Committed | None,
    log: tuple[int, int] | None,
    oldest: LogRecord | None,
    position: int | None,
    owner: MemberRow | None,
    now_ms: float,
) -> PartitionRow:
    current = None if committed is None else committed.offset
    end = None if log is None else log[1]
    lag = None if current is None or end is None else end - current
    lag_s: float | None = None
    if oldest is not None:
        lag_s = None if oldest.timestamp_ms is None else round(max(0.0, now_ms - oldest.timestamp_ms) / 1000, 3)
    elif lag is not None:
        lag_s = 0.0  # caught up, or nothing but transactions' markers follows
    note = None if committed is None else writer_of(committed.metadata)
    return PartitionRow(tp, current, end, lag, lag_s, position, owner, note)


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
             partitions(m.assigned))
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


def as_json(report: GroupReport) -> str:
    group = {"kind": "group", "group": report.group, "state": report.state, "coordinator": asdict(report.coordinator),
             "type": report.kind, "generation": report.generation, "strategy": report.strategy}  # fmt: skip
    members = [
        {"kind": "member", **asdict(member), "assigned": [list(tp) for tp in member.assigned]}
        for member in report.members
    ]
    rows = [
        {"kind": "partition", **row.tp._asdict(), "current_offset": row.current_offset,
         "log_end_offset": row.log_end_offset, "lag": row.lag, "lag_seconds": row.lag_s, "position": row.position,
         "consumer_id": row.owner and row.owner.member_id, "host": row.owner and row.owner.host,
         "client_id": row.owner and row.owner.client_id, "note": row.note and row.note.to_json()}
        for row in report.partitions
    ]  # fmt: skip
    return "\n".join(json.dumps(line) for line in [group, *members, *rows])
