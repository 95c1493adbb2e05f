"""When members were gone without an event that says so, as kill -9 leaves it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from spark_kafka_group.pictures.logged_run import Member
from spark_kafka_group.tools.event_logs import Event
from spark_kafka_group.values.offsets import TopicPartition


@dataclass(frozen=True)
class Absence:
    """After its last event of one process of a member, until the first of the next; None if there is no next.

    Attributes
    ----------
    member
        Group and member.
    from_ms, to_ms
        Times since the epoch.
    """

    member: Member
    from_ms: float
    to_ms: float | None


@dataclass
class _Known:
    """Of a member: what it owns, and its events round its newest assignment."""

    owned: frozenset[TopicPartition] = frozenset()
    kept: frozenset[TopicPartition] = frozenset()
    """The partitions of the newest assignment that it had before, until the first event after it."""
    before: Event | None = None
    """The event before that assignment."""
    last: Event | None = None
    generation: int = -1
    gone: list[tuple[float, float]] = field(default_factory=list)


def absences(events: Iterable[Event]) -> tuple[Absence, ...]:
    """Those of all members; `events` are in order of time.

    A process has begun where a batch is replayed, and where, after a batch without a commit, a member looks up
    positions of partitions that it kept: one that goes on does neither. A member has not come back if its group has a
    generation without it.
    """
    known: dict[Member, _Known] = {}
    newest: dict[str, int] = {}
    for event in events:
        newest[event.group] = max(newest.get(event.group, -1), event.generation)
        _note(known.setdefault((event.group, event.member), _Known()), event)
    return tuple(_found(known, newest))


def _note(member: _Known, event: Event) -> None:
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


def _begins_a_process(member: _Known, event: Event) -> bool:
    if event.kind == "planned":
        return event.replay
    after_assigned = member.last is not None and member.last.kind == "assigned"
    return event.kind == "moved" and after_assigned and not member.kept.isdisjoint(event.moves)


def _found(known: dict[Member, _Known], newest: dict[str, int]) -> Iterator[Absence]:
    for member, found in known.items():
        for from_ms, to_ms in found.gone:
            yield Absence(member, from_ms, to_ms)
        last = found.last
        if last is not None and last.kind != "stopped" and 0 <= found.generation < newest[member[0]]:
            yield Absence(member, last.time_ms, None)
