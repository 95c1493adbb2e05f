"""``reset``: set the committed offsets of a group without members, as kafka-consumer-groups --reset-offsets does."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum

from spark_kafka_group.errors import CommitError
from spark_kafka_group.text.foreign_text import printable
from spark_kafka_group.tools.admin_connection import connect
from spark_kafka_group.tools.arguments import Commands, ToolError, UsageError, add_command, add_group_arguments
from spark_kafka_group.tools.coordinators import of_no_consumers
from spark_kafka_group.tools.formatting import instant, table
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.admin import GroupAdmin
from spark_kafka_group.wire.group.members import CONSUMER

SUMMARY = "set a group's committed offsets"
DESCRIPTION = """\
Shows which offsets a group would be set to, and with --execute commits them.
The group must have no members: stop its queries and consumers first. Offsets
outside of a log become its first or its end offset, with a note.

The commit has no metadata. So a query that is started again sees that another
program wrote the offset, and goes on from there, not from its checkpoint.
"""
USAGE = """\
%(prog)s [-h] [--json]
           --bootstrap-server HOST:PORT,... [--command-config FILE]
           --group GROUP
           (--to-earliest | --to-latest | --to-datetime ISO | --to-offset N |
            --shift-by N)
           [--topic TOPIC[:N,N...] | --all-topics] [--execute]"""
"""argparse would leave the alternatives on one line, which is too long."""


class To(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    DATETIME = "datetime"
    OFFSET = "offset"
    SHIFT = "shift"


@dataclass(frozen=True)
class Target:
    """Where to move offsets; the number is an offset, offsets to shift by, or milliseconds since 1970."""

    to: To
    number: int = 0


@dataclass(frozen=True)
class Scope:
    """A topic, and those of its partitions that are meant; None are all."""

    topic: str
    partitions: tuple[int, ...] | None


@dataclass(frozen=True)
class Change:
    """The new offset of a partition; the note says why it is not the requested one."""

    tp: TopicPartition
    current: int | None
    new: int
    note: str | None


def add_to(commands: Commands) -> None:
    parser = add_command(commands, "reset", SUMMARY, DESCRIPTION)
    parser.usage = USAGE
    add_group_arguments(parser)
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument(
        "--to-earliest",
        dest="target",
        action="store_const",
        const=Target(To.EARLIEST),
        help="the first offset of the log",
    )
    target.add_argument(
        "--to-latest", dest="target", action="store_const", const=Target(To.LATEST), help="the end of the log"
    )
    target.add_argument(
        "--to-datetime", dest="target", type=_datetime, metavar="ISO",
        help="the first record that is as new, or newer: 2026-01-31T09:30:00.000, UTC unless it says +01:00",
    )  # fmt: skip
    target.add_argument("--to-offset", dest="target", type=_offset, metavar="N", help="this offset")
    target.add_argument(
        "--shift-by",
        dest="target",
        type=_shift,
        metavar="N",
        help="N offsets on from the committed one, or back if N < 0",
    )
    scope = parser.add_mutually_exclusive_group()
    scope.add_argument(
        "--topic", dest="topics", action="append", type=_scope, metavar="TOPIC[:N,N...]",
        help="a topic, or some of its partitions; may be repeated",
    )  # fmt: skip
    scope.add_argument(
        "--all-topics", action="store_true",
        help="all partitions for which the group has committed anything; without --execute this is the default",
    )  # fmt: skip
    parser.add_argument("--execute", action="store_true", help="commit; without it nothing is written")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.execute and not (args.topics or args.all_topics):
        raise UsageError("--execute needs --topic TOPIC[:N,N...] or --all-topics: name the partitions to write")
    with connect(args) as admin:
        check_idle(admin, args.group)
        changes = plan(admin, args.group, args.target, args.topics)
        if args.execute:
            execute(admin, args.group, changes)
    for change in changes if args.json else ():
        line = {"kind": "change", "group": args.group, **change.tp._asdict(), "current_offset": change.current,
                "new_offset": change.new, "note": change.note, "written": args.execute}  # fmt: skip
        print(json.dumps(line))
    if not args.json:
        headers = ("TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET", "NOTE")
        print(table(headers, [(*change.tp, change.current, change.new, change.note or "") for change in changes]))
        done = f"group {args.group} is set to them" if args.execute else "nothing was written: --execute does that"
        print(f"\n{printable(done)}")
    return 0


def check_idle(admin: GroupAdmin, group: str) -> None:
    """Check that a group is of consumers, and has no members. Raises ToolError with its members' names; BrokerError."""
    described = admin.describe(group)
    if described.use != CONSUMER:
        raise ToolError(of_no_consumers(group, described.use, "--reset-offsets"))
    if described.state in ("Empty", "Dead"):
        return
    who = ", ".join(f"{m.member_id} ({m.client_id} {m.host})" for m in described.members) or "members"
    raise ToolError(f"group {group} is {described.state} with {who}: stop them before you set its offsets")


def plan(admin: GroupAdmin, group: str, target: Target, scopes: Collection[Scope] | None) -> list[Change]:
    """The new offset of every partition, in order; of all committed partitions where no scopes are given. Raises
    ToolError when a partition does not exist, or has nothing committed to shift. Raises BrokerError."""
    committed = {tp: known.offset for tp, known in admin.committed(group).items()}
    if scopes is None:
        if not committed:
            raise ToolError(f"group {group} has committed nothing: name topics with --topic")
        tps = _existing(admin, sorted(committed))
    else:
        tps = _in_scope(admin, scopes)
    ranges = admin.log_ranges(tps)
    at = admin.offsets_at(tps, target.number) if target.to is To.DATETIME else {}
    return [_change(tp, target, committed.get(tp), ranges[tp], at) for tp in tps]


def execute(admin: GroupAdmin, group: str, changes: Sequence[Change]) -> None:
    """Check again that the group has no members, and commit. Raises ToolError, CommitError, BrokerError."""
    check_idle(admin, group)
    try:
        admin.commit(group, {change.tp: change.new for change in changes})
    except CommitError:
        check_idle(admin, group)  # a member joined just now: the error names it
        raise


def _change(
    tp: TopicPartition,
    target: Target,
    current: int | None,
    log: tuple[int, int],
    at: Mapping[TopicPartition, int | None],
) -> Change:
    first, end = log
    match target.to:
        case To.EARLIEST:
            return Change(tp, current, first, None)
        case To.LATEST:
            return Change(tp, current, end, None)
        case To.DATETIME:
            found = at[tp]
            note = f"no record is as new as {instant(target.number)}: the end of the log" if found is None else None
            return Change(tp, current, end if found is None else found, note)
        case To.OFFSET:
            wanted = target.number
        case To.SHIFT:
            if current is None:
                raise ToolError(f"{tp} has no committed offset to shift: take --to-offset, or leave it out")
            wanted = current + target.number
    if wanted > end:
        return Change(tp, current, end, f"{wanted} is behind the end of the log")
    if wanted < first:
        return Change(tp, current, first, f"{wanted} is before the start of the log")
    return Change(tp, current, wanted, None)


def _existing(admin: GroupAdmin, tps: Sequence[TopicPartition]) -> list[TopicPartition]:
    """All of `tps`, if all of them exist and have a leader."""
    leaders = admin.leaders(sorted({tp.topic for tp in tps}))
    gone = [str(tp) for tp in tps if tp not in leaders]
    if gone:
        raise ToolError(f"there is no {', '.join(gone)}: name those that exist with --topic; nothing was written")
    dead = [str(tp) for tp in tps if leaders[tp] is None]
    if dead:
        raise ToolError(f"{', '.join(dead)} have no leader: start the brokers that hold them; nothing was written")
    return list(tps)


def _in_scope(admin: GroupAdmin, scopes: Collection[Scope]) -> list[TopicPartition]:
    there = admin.leaders(sorted({scope.topic for scope in scopes}))
    missing = sorted({scope.topic for scope in scopes} - {tp.topic for tp in there})
    if missing:
        raise ToolError(f"there is no topic {', '.join(missing)}: look at --topic; nothing was written")
    tps = set()
    for scope in scopes:
        numbers = scope.partitions
        tps |= {tp for tp in there if tp.topic == scope.topic} if numbers is None else set()
        tps |= {TopicPartition(scope.topic, number) for number in numbers or ()}
    return _existing(admin, sorted(tps))


# Arguments


def _datetime(text: str) -> Target:
    try:
        moment = datetime.fromisoformat(text)
        since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} must be like 2026-01-31T09:30:00.000 ({error})") from error
    if since < timedelta(0):
        raise argparse.ArgumentTypeError(f"{text!r} is before 1970")
    return Target(To.DATETIME, since // timedelta(milliseconds=1))


def _offset(text: str) -> Target:
    if not re.fullmatch(r"[0-9]{1,19}", text):
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from 0 on")
    return Target(To.OFFSET, int(text))


def _shift(text: str) -> Target:
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text):
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number")
    return Target(To.SHIFT, int(text))


def _scope(text: str) -> Scope:
    found = re.fullmatch(r"([A-Za-z0-9._-]{1,249})(?::([0-9]{1,10}(?:,[0-9]{1,10})*))?", text)
    if found is None or found[1] in (".", ".."):
        raise argparse.ArgumentTypeError(f"{text!r} must be a topic, or topic:0,1 with some of its partitions")
    return Scope(found[1], None if found[2] is None else tuple(sorted(map(int, found[2].split(",")))))
