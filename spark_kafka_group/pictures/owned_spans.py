"""Who owned which partition when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from spark_kafka_group.pictures.absences import Absence, absences
from spark_kafka_group.pictures.logged_run import Member
from spark_kafka_group.tools.event_logs import Event
from spark_kafka_group.values.offsets import TopicPartition

Partition = tuple[str, TopicPartition]
"""A partition, and the group that it belongs to."""


@dataclass(frozen=True)
class OwnedSpan:
    """A member owned a partition from one time to another, ms since the epoch."""

    member: Member
    tp: TopicPartition
    from_ms: float
    to_ms: float


@dataclass(frozen=True)
class Generation:
    """The first event of a generation, and whether partitions changed hands in it."""

    group: str
    number: int
    time_ms: float
    changed: bool


@dataclass
class _Owning:
    since: dict[TopicPartition, float] = field(default_factory=dict)
    generation: int = -1
    last_ms: float = 0.0


@dataclass
class _Group:
    members: dict[str, _Owning] = field(default_factory=dict)
    spans: list[OwnedSpan] = field(default_factory=list)


def owned_spans(events: Sequence[Event]) -> tuple[OwnedSpan, ...]:
    """Spans of all partitions; `events` are in order of time.

    A span ends where its member gives the partition back, stops, or dies. One that is open at the end lasts until the
    last event of the run.
    """
    groups: dict[str, _Group] = {}
    for event in events:
        _note(groups.setdefault(event.group, _Group()), event)
    end_ms = max((event.time_ms for event in events), default=0.0)
    for name, group in groups.items():
        for member, owning in group.members.items():
            _close(group, name, member, tuple(owning.since), end_ms)
    gone = _by_member(absences(events))
    whole = (span for group in groups.values() for span in group.spans)
    return tuple(part for span in whole for part in _without(span, gone.get(span.member, ())))


def generations(events: Iterable[Event]) -> tuple[Generation, ...]:
    """Generations in order of time, those of groups only."""
    by_number: dict[tuple[str, int], Generation] = {}
    owned: dict[Member, frozenset[TopicPartition]] = {}
    for event in events:
        if event.kind != "assigned" or event.generation < 0:
            continue
        member, key = (event.group, event.member), (event.group, event.generation)
        seen = by_number.setdefault(key, Generation(*key, event.time_ms, False))
        if owned.get(member) != event.partitions:
            by_number[key] = replace(seen, changed=True)
        owned[member] = event.partitions
    return tuple(by_number.values())


def _note(group: _Group, event: Event) -> None:
    own = group.members.setdefault(event.member, _Owning())
    match event.kind:
        case "assigned":
            _close(group, event.group, event.member, own.since.keys() - event.partitions, event.time_ms)
            gained = event.partitions - own.since.keys()
            if gained:
                _end_those_before(group, event, gained)
            own.since.update(dict.fromkeys(gained, event.time_ms))
            own.generation = event.generation
        case "revoked" | "lost":
            _close(group, event.group, event.member, event.partitions, event.time_ms)
        case "stopped":
            _close(group, event.group, event.member, tuple(own.since), event.time_ms)
    own.last_ms = event.time_ms


def _end_those_before(group: _Group, event: Event, gained: frozenset[TopicPartition]) -> None:
    """Spans of members that were dead when others got their partitions in a later generation."""
    for name, other in group.members.items():
        if name != event.member and other.generation < event.generation:
            _close(group, event.group, name, gained & other.since.keys(), other.last_ms)


def _close(group: _Group, name: str, member: str, tps: Iterable[TopicPartition], time_ms: float) -> None:
    since = group.members[member].since
    for tp in tps:
        from_ms = since.pop(tp, None)
        if from_ms is not None:
            group.spans.append(OwnedSpan((name, member), tp, from_ms, max(from_ms, time_ms)))


def _by_member(found: Iterable[Absence]) -> dict[Member, list[Absence]]:
    by_member: dict[Member, list[Absence]] = {}
    for absence in found:
        by_member.setdefault(absence.member, []).append(absence)
    return by_member


def _without(span: OwnedSpan, gone: Iterable[Absence]) -> Iterator[OwnedSpan]:
    """Parts of a span in which its member was there; `gone` is in order of time."""
    for absence in gone:
        to_ms = span.to_ms if absence.to_ms is None else absence.to_ms
        if absence.from_ms >= span.to_ms or to_ms <= span.from_ms:
            continue
        if absence.from_ms > span.from_ms:
            yield replace(span, to_ms=absence.from_ms)
        if to_ms >= span.to_ms:
            return
        span = replace(span, from_ms=to_ms)
    yield span
