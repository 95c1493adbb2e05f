"""Invariants of every run of a group, also when members join, leave or die: each is a function.

The first three look at events in order of time, the others at the history of one partition: plans, commits and moves.
Generations that the events of members do not cover are left out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from spark_kafka_group.tools.event_logs import Event
from spark_kafka_group.values.offsets import OffsetRange, TopicPartition


@dataclass(frozen=True)
class Plan:
    """A range that a member is about to read."""

    event: Event
    range: OffsetRange


@dataclass(frozen=True)
class Commit:
    """A committed offset, and the planned range that it ends, if its member planned one in the same generation."""

    event: Event
    tp: TopicPartition
    offset: int
    plan: Plan | None


@dataclass(frozen=True)
class Moved:
    """A member goes on somewhere else than where the batch before ended."""

    event: Event
    to: int


Step = Plan | Commit | Moved
History = tuple[Step, ...]


def histories(events: Iterable[Event]) -> Mapping[tuple[str, TopicPartition], History]:
    """The history of each partition of each group; `events` are in order of time."""
    steps: dict[tuple[str, TopicPartition], list[Step]] = {}
    plans: dict[tuple[str, str, int, TopicPartition, int], Plan] = {}
    for event in events:
        member = (event.group, event.member, event.generation)
        for found in event.ranges:
            plan = plans[*member, found.tp, found.end] = Plan(event, found)
            steps.setdefault((event.group, found.tp), []).append(plan)
        for tp, offset in event.offsets.items():
            commit = Commit(event, tp, offset, plans.get((*member, tp, offset)))
            steps.setdefault((event.group, tp), []).append(commit)
        for tp, move in event.moves.items():
            steps.setdefault((event.group, tp), []).append(Moved(event, move.to))
    return {partition: tuple(found) for partition, found in steps.items()}


class Sight:
    """A member that wrote events, of a run in any order, covers a partition in the generations in which it owned it."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._owned: dict[tuple[str, int], set[TopicPartition]] = defaultdict(set)
        self._partitions: dict[tuple[str, str], set[TopicPartition]] = defaultdict(set)
        for event in events:
            if event.kind == "assigned":
                self._owned[event.group, event.generation] |= event.partitions
                for tp in event.partitions:
                    self._partitions[event.group, tp.topic].add(tp)

    def lost(self, group: str, tp: TopicPartition, after: int, before: int) -> bool:
        """Whether a member without events may have owned a partition between two generations. The generations of a
        group that was deleted and made again start from 1 again, so they prove nothing."""
        between = range(after + 1, before)
        return before < after or any(not (self._seen(group, tp, g) or self._empty(group, tp.topic, g)) for g in between)

    def _seen(self, group: str, tp: TopicPartition, generation: int) -> bool:
        return tp in self._owned.get((group, generation), ())

    def _empty(self, group: str, topic: str, generation: int) -> bool:
        """Whether a generation is that of a group without members: the last one left, and came back after it."""
        everything = self._partitions[group, topic]
        around = [self._owned.get((group, g), set()) for g in (generation - 1, generation + 1)]
        return (group, generation) not in self._owned and all(everything <= owned for owned in around)


WITHOUT_MEMBERSHIP = -1  # the generation of a member that was assigned its partitions by hand

ONE_OWNER = "one owner"
PLANNED_BY_OWNER = "planned by its owner"
GIVEN_BACK = "nothing after giving back"
COMMITTED_AS_PLANNED = "committed as planned"
NEVER_BACKWARD = "never backward"
ONE_AFTER_ANOTHER = "one after another"


@dataclass(frozen=True)
class Violation:
    """A broken invariant, and the events that prove it."""

    invariant: str
    problem: str
    proof: tuple[Event, ...]


@dataclass(frozen=True)
class InDoubt:
    """A planned range without a commit event before later ones: the member may have died before writing the event."""

    plan: Plan
    followed_by: Event


@dataclass(frozen=True)
class Unseen:
    """Records between two commits that no event has; another member without events may have read them."""

    range: OffsetRange
    proof: tuple[Event, ...]


def one_owner(events: Iterable[Event]) -> Iterator[Violation]:
    """No partition is assigned to two members in one generation of a group, except where members have no membership.

    A member that is in another generation by now, or in none, proves nothing: a group that was of Kafka's newer
    protocol counts from 1 again once all its members have left. Nor does what a member was assigned before it was last
    outside the group, as it may have come to the same number again since.
    """
    owners: dict[tuple[str, int, TopicPartition], tuple[Event, int]] = {}
    now: dict[tuple[str, str], tuple[int, int]] = {}  # generation, and how often the member was outside before
    times_outside: Counter[tuple[str, str]] = Counter()
    for event in events:
        member = (event.group, event.member)
        if event.kind in ("lost", "stopped"):
            now.pop(member, None)
            times_outside[member] += 1
        if event.kind != "assigned" or event.generation == WITHOUT_MEMBERSHIP:
            continue
        if event.generation < now.get(member, (0, 0))[0]:  # it was killed
            times_outside[member] += 1
        here = now[member] = event.generation, times_outside[member]
        for tp in sorted(event.partitions):
            owner, outside = owners.get((event.group, event.generation, tp), (event, here[1]))
            if now.get((event.group, owner.member)) != (event.generation, outside):
                owner, outside = event, here[1]
            owners[event.group, event.generation, tp] = owner, outside
            if owner.member != event.member:
                problem = f"{tp} was assigned to {owner.member} and to {event.member} in generation {event.generation}"
                yield Violation(ONE_OWNER, problem, (owner, event))


def planned_by_owner(events: Iterable[Event]) -> Iterator[Violation]:
    """A member plans and commits only partitions that are assigned to it in its generation. A batch read again after a
    crash may have others' partitions, and is committed for those that no member owns."""
    assigned: dict[tuple[str, str, int], Event] = {}
    owned: set[tuple[str, int, TopicPartition]] = set()
    replayed: set[tuple[str, str, int, TopicPartition]] = set()
    for event in events:
        member = (event.group, event.member, event.generation)
        if event.kind == "assigned":
            assigned[member] = event
            owned |= {(event.group, event.generation, tp) for tp in event.partitions}
        last = assigned.get(member)
        if event.replay:
            replayed |= {(*member, planned.tp) for planned in event.ranges}
        needed = [] if event.replay else [(planned.tp, f"planned {planned}") for planned in event.ranges]
        needed += [
            (tp, f"committed {tp}={offset}")
            for tp, offset in event.offsets.items()
            if (*member, tp) not in replayed or (event.group, event.generation, tp) in owned
        ]
        yield from _not_assigned(event, last, needed)


def _not_assigned(
    event: Event, last: Event | None, needed: Iterable[tuple[TopicPartition, str]]
) -> Iterator[Violation]:
    """Partitions that `event` needs, with the reason, and that its member's last assignment lacks."""
    for tp, reason in needed:
        if last is None or tp not in last.partitions:
            problem = f"{event.member} {reason} in generation {event.generation}, in which {tp} was not assigned to it"
            yield Violation(PLANNED_BY_OWNER, problem, (event,) if last is None else (last, event))


def nothing_after_giving_back(events: Iterable[Event]) -> Iterator[Violation]:
    """A member plans nothing of a partition between its loss and its next assignment, but for a batch run again."""
    gone: dict[tuple[str, str, TopicPartition], Event] = {}
    for event in events:
        for tp in event.partitions:
            if event.kind == "assigned":
                gone.pop((event.group, event.member, tp), None)
            else:
                gone[event.group, event.member, tp] = event
        for found in () if event.replay else event.ranges:
            since = gone.get((event.group, event.member, found.tp))
            if since is not None:
                problem = f"{event.member} planned {found} after {found.tp} was {since.kind}"
                yield Violation(GIVEN_BACK, problem, (since, event))


def committed_as_planned(history: History) -> Iterator[Violation]:
    """A committed offset is the end of a range that its member had planned under the same generation."""
    plans: dict[str, Event] = {}
    for step in history:
        if isinstance(step, Plan):
            plans[step.event.member] = step.event
        elif isinstance(step, Commit) and step.plan is None:
            event = step.event
            problem = (
                f"{event.member} committed {step.tp}={step.offset} under generation {event.generation}, in which it "
                f"had planned no range that ends there"
            )
            last = plans.get(event.member)
            yield Violation(COMMITTED_AS_PLANNED, problem, (event,) if last is None else (last, event))


def never_backward(history: History) -> Iterator[Violation]:
    """A committed offset is not below the one before, unless its member was moved to it, or below it, since then."""
    last: Commit | None = None
    moved: dict[str, int] = {}
    for step in history:
        if isinstance(step, Moved):
            moved[step.event.member] = step.to
        elif isinstance(step, Commit):
            to = moved.get(step.event.member)
            if last is not None and step.offset < last.offset and (to is None or step.offset < to):
                problem = (
                    f"{last.event.member} committed {last.tp}={last.offset}, then {step.event.member} committed "
                    f"{step.tp}={step.offset}"
                )
                yield Violation(NEVER_BACKWARD, problem, (last.event, step.event))
            last = step
            moved.clear()


def one_after_another(history: History, sight: Sight | None = None) -> Iterator[Violation | InDoubt | Unseen]:
    """Committed ranges follow each other without gap or overlap, but where their member was moved to their start. A gap
    that ranges planned and not committed fill exactly is in doubt. One is unseen if members that wrote no events may
    have filled it. `sight`: the generations that the events cover; all if not given, as all members wrote events."""
    last: Commit | None = None
    moved: dict[str, int] = {}
    pending: list[Plan] = []
    for step in history:
        if isinstance(step, Plan):
            pending.append(step)
        elif isinstance(step, Moved):
            moved[step.event.member] = step.to
        else:
            if last is not None and step.plan is not None:
                found = _follows(last, step, step.plan, moved.get(step.event.member), pending)
                yield from found if sight is None else _as_seen(found, sight, last, step, step.plan)
            # The planner of this range knew how the ranges before it ended.
            if step.plan in pending:
                pending = pending[pending.index(step.plan) + 1 :]
            last = step
            moved.clear()


def _follows(
    last: Commit, commit: Commit, plan: Plan, moved_to: int | None, pending: list[Plan]
) -> Iterator[Violation | InDoubt]:
    start = plan.range.start
    if start == last.offset:
        return
    before = pending[: pending.index(plan)] if plan in pending else pending
    for known in (last.offset, moved_to):
        filling = None if known is None else _filling(before, known, start)
        if filling:
            yield from (InDoubt(found, commit.event) for found in filling)
            return
    if start == moved_to:
        return
    expected = last.offset if moved_to is None else moved_to
    what = f"[{expected},{start}) was left out" if start > expected else f"[{start},{expected}) was committed before"
    problem = f"{commit.event.member} committed {plan.range}, where {expected} was to be next: {what}"
    yield Violation(ONE_AFTER_ANOTHER, problem, (last.event, plan.event, commit.event))


def _as_seen(
    found: Iterable[Violation | InDoubt], sight: Sight, last: Commit, commit: Commit, plan: Plan
) -> Iterator[Violation | InDoubt | Unseen]:
    """The finding about a gap between two commits."""
    generations = last.event.generation, commit.event.generation
    forward = plan.range.start > last.offset
    for finding in found:
        if isinstance(finding, Violation) and forward and sight.lost(commit.event.group, commit.tp, *generations):
            yield Unseen(OffsetRange(commit.tp, last.offset, plan.range.start), finding.proof)
        else:
            yield finding


def _filling(plans: Collection[Plan], start: int, end: int) -> list[Plan] | None:
    """Some of `plans` that lead from `start` to `end` without gap or overlap, in order; None when none do."""
    ways: dict[int, list[Plan]] = {start: []}
    for plan in sorted(plans, key=lambda plan: plan.range.start):
        if plan.range.start in ways and plan.range.end not in ways:
            ways[plan.range.end] = [*ways[plan.range.start], plan]
    return ways.get(end) if end > start else None
