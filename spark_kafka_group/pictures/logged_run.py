"""The files of events that pictures are drawn from, and when members were gone without an event, as after kill -9."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import cycle
from pathlib import Path

from spark_kafka_group.pictures import canvas
from spark_kafka_group.pictures.canvas import MOST_NAMED, Elapsed, Theme, elapsed
from spark_kafka_group.tools.arguments import ToolError
from spark_kafka_group.tools.event_logs import Event, read_run
from spark_kafka_group.values.offsets import TopicPartition

Files = Iterable[Path | str]
Member = tuple[str, str]  # group and member
LONGEST_OF_BOTH = 13  # characters of the group's name, and of the member's, where both are shown


@dataclass(frozen=True)
class LoggedRun:
    """Events of a run in order of time, at least one, and what all its pictures show alike."""

    events: Sequence[Event]
    remarks: tuple[str, ...]  # about the files
    theme: Theme

    @cached_property
    def time(self) -> Elapsed:
        """From the first event to the last."""
        return elapsed(event.time_ms for event in self.events)

    @property
    def title(self) -> str:
        return canvas.title("group", {event.group for event in self.events}, self.time.range)

    @cached_property
    def members(self) -> dict[Member, str]:
        """Labels of members, in order of their first event; of more than a picture can name, those with most events
        first."""
        counts = Counter((event.group, event.member) for event in self.events)
        ordered = list(counts) if len(counts) <= MOST_NAMED else [member for member, _ in counts.most_common()]
        groups = {group for group, _ in ordered}
        if len(groups) == 1:
            short = canvas.ids([member for _, member in ordered])
            return {(group, member): short[member] for group, member in ordered}
        # Both together have the room of one, at both sides of a picture.
        short = canvas.ids([member for _, member in ordered], LONGEST_OF_BOTH)
        prefixes = canvas.ids(groups, LONGEST_OF_BOTH)
        return {(group, member): f"{prefixes[group]}: {short[member]}" for group, member in ordered}

    @cached_property
    def colours(self) -> dict[Member, str]:
        """Of members, in their order; they repeat."""
        return dict(zip(self.members, cycle(self.theme.members), strict=False))


def read(files: Files, theme: str) -> LoggedRun:
    """Events of all files, to be drawn in a theme. Raises ToolError when a file cannot be read, a line is no event, or
    there is no event at all. Raises ValueError when there is no theme of this name."""
    if isinstance(files, str | Path):
        files = [files]
    paths = [Path(file) for file in files]
    run = read_run(paths)
    if not run.events:
        names = ", ".join(map(str, paths)) or "no file"
        raise ToolError(f"{names}: no events; a query with option eventLog writes them")
    return LoggedRun(run.events, run.remarks, canvas.theme_named(theme))


@dataclass(frozen=True)
class Absence:
    """After its last event of one process of a member, until the first of the next; None if there is no next.
    `from_ms`, `to_ms`: times since the epoch."""

    member: Member  # group and member
    from_ms: float
    to_ms: float | None


@dataclass
class _KnownMember:
    """Of a member: what it owns, and its events round its newest assignment."""

    owned: frozenset[TopicPartition] = frozenset()
    kept: frozenset[TopicPartition] = frozenset()
    """The partitions of the newest assignment that it had before, until the first event after it."""
    before: Event | None = None  # the event before that assignment
    last: Event | None = None
    generation: int = -1
    gone: list[tuple[float, float]] = field(default_factory=list)


def absences(events: Iterable[Event]) -> tuple[Absence, ...]:
    """Those of all members; `events` are in order of time. A process has begun where a batch is replayed, and where,
    after a batch without a commit, a member looks up positions of partitions that it kept: one that goes on does
    neither. A member has not come back if its group has a generation without it."""
    known: dict[Member, _KnownMember] = {}
    newest: dict[str, int] = {}
    for event in events:
        newest[event.group] = max(newest.get(event.group, -1), event.generation)
        _note(known.setdefault((event.group, event.member), _KnownMember()), event)
    return tuple(_found(known, newest))


def _note(member: _KnownMember, event: Event) -> None:
    last = member.last
    if last is not None and _begins_a_process(member, event):
        ended, began = (member.before, last) if last.kind == "assigned" else (last, event)
        if ended is not None and ended.kind != "stopped":
            member.gone.append((ended.time_ms, began.time_ms))
    match event.kind:
        case "assigned":
            unfinished = last is not None and last.kind == "planned"
            member.kept = member.owned & event.partitions if unfinished else frozenset()
            member.owned, member.before = event.partitions, last
        case "revoked" | "lost":
            member.owned -= event.partitions
        case "stopped":
            member.owned = frozenset()
    member.generation = max(member.generation, event.generation)
    member.last = event


def _begins_a_process(member: _KnownMember, event: Event) -> bool:
    if event.kind == "planned":
        return event.replay
    after_assigned = member.last is not None and member.last.kind == "assigned"
    return event.kind == "moved" and after_assigned and not member.kept.isdisjoint(event.moves)


def _found(known: dict[Member, _KnownMember], newest: dict[str, int]) -> Iterator[Absence]:
    for member, found in known.items():
        for from_ms, to_ms in found.gone:
            yield Absence(member, from_ms, to_ms)
        last = found.last
        if last is not None and last.kind != "stopped" and 0 <= found.generation < newest[member[0]]:
            yield Absence(member, last.time_ms, None)
