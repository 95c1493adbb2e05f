"""``verify``: whether a run kept the promises of a consumer group, by the events of its members."""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from spark_kafka_group.text.foreign_text import printable
from spark_kafka_group.text.text_table import counted
from spark_kafka_group.tools import invariants
from spark_kafka_group.tools.arguments import Commands, add_command
from spark_kafka_group.tools.event_logs import Event, read_run
from spark_kafka_group.tools.formatting import sentence
from spark_kafka_group.tools.invariants import Commit, History, InDoubt, Sight, Unseen, Violation, histories

__all__ = ["Event", "Report", "verify"]

F = TypeVar("F", Violation, InDoubt, Unseen)

VIOLATED = 3
SUMMARY = "check a run from the events its members wrote"
DESCRIPTION = """\
Merges files of events by time (a JSON object a line, as option eventLog makes
a query write them), and checks what must hold when members join, leave or die:

  one owner                  no partition is assigned to two members in one
                             generation
  planned by its owner       a member plans and commits only partitions that
                             are assigned to it in that generation
  nothing after giving back  no range is planned of a partition that was revoked
                             or lost, until it is assigned again
  committed as planned       a committed offset ends a range that its member
                             planned under the same generation
  never backward             committed offsets only grow, unless an event says
                             that the member's position was moved
  one after another          committed ranges follow each other without gap or
                             overlap, unless an event says that the position
                             was moved

A batch that is read again after a crash (replay) may have partitions that other
members own by now. Their offsets must not be committed.

Two kinds of gaps are listed, and are no violations:

  in doubt  planned ranges fill the gap exactly, and no event has their commit:
            the member may have died before it wrote that event
  unseen    in a generation in between, no member with events had the partition:
            a member without events may have read it. With --all-members this is
            a violation.

The last line of a file may be cut off, as kill -9 leaves it.

The exit code is 3 if there are violations.
"""


@dataclass(frozen=True)
class Report:
    """Counts of a run, and its violations."""

    events: int
    groups: int
    members: int
    generations: int
    partitions: int
    batches: int
    records_committed: int
    in_doubt: tuple[InDoubt, ...]
    violations: tuple[Violation, ...]
    unseen: tuple[Unseen, ...] = ()

    @property
    def records_in_doubt(self) -> int:
        return sum(found.plan.range.size for found in self.in_doubt)

    @property
    def records_unseen(self) -> int:
        return sum(found.range.size for found in self.unseen)


def verify(events: Iterable[Event], all_members: bool = True) -> Report:
    """Check a run. `events`: in order of time, as :func:`spark_kafka_group.tools.event_logs.merge` gives them.
    `all_members`: whether they are those of all members that their groups had."""
    events = tuple(events)
    partitions = histories(events)
    findings = list(_findings(events, partitions.values(), None if all_members else Sight(events)))
    return Report(
        events=len(events),
        groups=len({event.group for event in events}),
        members=len({(event.group, event.member) for event in events}),
        generations=len({(event.group, event.generation) for event in events if event.generation >= 0}),
        partitions=len(partitions),
        batches=len({(event.group, event.member, event.batch) for event in events if event.ranges}),
        records_committed=sum(map(_records_committed, partitions.values())),
        in_doubt=_of(InDoubt, findings),
        violations=_of(Violation, findings),
        unseen=_of(Unseen, findings),
    )


def _records_committed(history: History) -> int:
    return sum(step.plan.range.size for step in history if isinstance(step, Commit) and step.plan is not None)


def _of(kind: type[F], findings: Iterable[object]) -> tuple[F, ...]:
    return tuple(finding for finding in findings if isinstance(finding, kind))


def _findings(
    events: Collection[Event], partitions: Iterable[History], sight: Sight | None
) -> Iterator[Violation | InDoubt | Unseen]:
    for of_events in (invariants.one_owner, invariants.planned_by_owner, invariants.nothing_after_giving_back):
        yield from of_events(events)
    for history in partitions:
        yield from invariants.committed_as_planned(history)
        yield from invariants.never_backward(history)
        yield from invariants.one_after_another(history, sight)


# The command


def add_to(commands: Commands) -> None:
    parser = add_command(commands, "verify", SUMMARY, DESCRIPTION)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="events as JSON lines")
    parser.add_argument(
        "--all-members",
        action="store_true",
        help="all members wrote these files, so an event that they lack did not happen",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    found = read_run(args.files)
    report = verify(found.events, args.all_members)
    if args.json:
        print("\n".join(map(printable, _json_lines(report, found.remarks))))
    else:
        print("\n".join(map(sentence, _text_lines(report, found.remarks))))
    return VIOLATED if report.violations else 0


def _text_lines(report: Report, remarks: Iterable[str]) -> list[str]:
    lines = [f"note: {remark}" for remark in remarks]
    lines += [
        f"in doubt: {found.plan.event.member} planned {found.plan.range} and no event has its commit "
        f"({_lines_of((found.plan.event, found.followed_by))})"
        for found in report.in_doubt
    ]
    lines += [
        f"unseen: the reader of {found.range}, if there was one, wrote no events ({_lines_of(found.proof)})"
        for found in report.unseen
    ]
    lines += [
        f"violation: {found.invariant}: {found.problem} ({_lines_of(found.proof)})" for found in report.violations
    ]
    lines.append(_summary(report))
    lines.append(counted(len(report.violations), "violation") if report.violations else "no violations")
    return lines


def _summary(report: Report) -> str:
    events = f"{counted(report.events, 'event')} of {counted(report.members, 'member')}"
    run = ", ".join(
        [
            counted(report.generations, "generation"), counted(report.partitions, "partition"),
            counted(report.batches, "batch", "batches"),
            f"{counted(report.records_committed, 'record')} committed",
        ]
    )  # fmt: skip
    gaps = [
        f", {counted(len(ranges), 'range')} with {counted(records, 'record')} {kind}"
        for ranges, records, kind in (
            (report.in_doubt, report.records_in_doubt, "in doubt"),
            (report.unseen, report.records_unseen, "unseen"),
        )
        if ranges
    ]
    return f"{events} in {counted(report.groups, 'group')}: {run}{''.join(gaps)}"


def _lines_of(events: Iterable[Event]) -> str:
    return ", ".join(event.where for event in events)


def _json_lines(report: Report, remarks: Iterable[str]) -> list[str]:
    lines: list[dict[str, Any]] = [{"kind": "note", "text": remark} for remark in remarks]
    lines += [
        {"kind": "in_doubt", "member": found.plan.event.member, **found.plan.range.tp._asdict(),
         "start": found.plan.range.start, "end": found.plan.range.end,
         "lines": [found.plan.event.where, found.followed_by.where]}
        for found in report.in_doubt
    ]  # fmt: skip
    lines += [
        {"kind": "unseen", **found.range.tp._asdict(), "start": found.range.start, "end": found.range.end,
         "lines": [event.where for event in found.proof]}
        for found in report.unseen
    ]  # fmt: skip
    lines += [
        {"kind": "violation", "invariant": found.invariant, "problem": found.problem,
         "lines": [event.where for event in found.proof]}
        for found in report.violations
    ]  # fmt: skip
    lines.append(
        {"kind": "summary", "events": report.events, "groups": report.groups, "members": report.members,
         "generations": report.generations, "partitions": report.partitions, "batches": report.batches,
         "records_committed": report.records_committed, "in_doubt": len(report.in_doubt),
         "records_in_doubt": report.records_in_doubt, "unseen": len(report.unseen),
         "records_unseen": report.records_unseen, "violations": len(report.violations)}
    )  # fmt: skip
    return [json.dumps(line) for line in lines]
