"""What the group does: assignments, plans and commits, by the members' events and by the coordinator's own records.

``verify`` judges events. The coordinator's records of generations and commits are judged by its invariants, too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from faults.evidence import TP, Batch, Finding, Observed, Stored
from faults.judge.rows import process_of
from spark_kafka_group.offsets_topic.decoding import OFFSETS_TOPIC
from spark_kafka_group.tools import invariants
from spark_kafka_group.tools.event_logs import Event
from spark_kafka_group.tools.invariants import WITHOUT_MEMBERSHIP, Commit, Moved, Step
from spark_kafka_group.tools.verify import verify
from spark_kafka_group.values.commit_metadata import instance_id_of
from spark_kafka_group.values.offsets import TopicPartition

CLOCK_MS = 10.0
"""Two clocks of one machine: files' times are up to a tick of the kernel behind."""


def verified(run: Observed) -> Iterator[Finding]:
    """``verify`` finds nothing in the members' events."""
    for found in verify(run.events, run.all_members).violations:
        yield Finding("verify", f"{found.invariant}: {found.problem} ({', '.join(e.where for e in found.proof)})")


def one_owner(run: Observed) -> Iterator[Finding]:
    """No stored generation gives a partition to two members."""
    for stored in run.stored:
        assigned = [
            _event(stored, "assigned", member, partitions=frozenset(TopicPartition(*tp) for tp in tps))
            for member, tps in stored.members.items()
        ]
        yield from _of_the_coordinator(invariants.one_owner(assigned))


def commits_never_backward(run: Observed) -> Iterator[Finding]:
    """In the offsets topic no commit is below the one before, unless its member was moved to it; and none is removed.

    Where not all members have written events, this holds of queries' commits: what moved another program is not known.
    """
    moved = {(tuple(tp), move.to) for event in run.events for tp, move in event.moves.items()}
    removed: Counter[TP] = Counter()
    histories: dict[tuple[TP, int], list[Step]] = defaultdict(list)
    for stored in run.stored:
        if stored.tp is None:
            continue
        if stored.offset is None:
            removed[stored.tp] += 1
            if not run.operated:
                yield Finding(invariants.NEVER_BACKWARD, f"the offset of {stored.tp} was removed")
            continue
        event = _event(stored, "committed", "another program" if stored.note is None else stored.note["reader"])
        history = histories[stored.tp, removed[stored.tp]]
        if (stored.tp, stored.offset) in moved or (stored.note is None and not run.all_members):
            history.append(Moved(event, stored.offset))
        history.append(Commit(event, TopicPartition(*stored.tp), stored.offset, None))
    for history in histories.values():
        yield from _of_the_coordinator(invariants.never_backward(tuple(history)))


def _event(stored: Stored, kind: str, member: str, **more: Any) -> Event:
    """A record of the coordinator as an event of a member."""
    generation = WITHOUT_MEMBERSHIP if stored.generation is None else stored.generation
    return Event(stored.time_ms, kind, "", member, generation, f"{OFFSETS_TOPIC}:{stored.time_ms:.0f}", **more)


def _of_the_coordinator(found: Iterable[invariants.Violation]) -> Iterator[Finding]:
    for violation in found:
        yield Finding(violation.invariant, f"as the coordinator has it, {violation.problem}")


def assigned_as_stored(run: Observed) -> Iterator[Finding]:
    """What a member says it was assigned is what the coordinator has stored for it.

    A broker that assigns stores no generations: epochs are compared where all members are known.
    """
    numbers = {stored.generation for stored in run.stored}
    given: dict[tuple[int | None, str], list[frozenset[TP]]] = defaultdict(list)
    for stored in run.stored:
        for member, tps in stored.members.items():
            for name in {*stored.names.get(member, ())}:
                given[stored.generation, name].append(frozenset(tps))
    for event in run.events:
        known = event.generation in numbers or (run.all_members and event.generation != WITHOUT_MEMBERSHIP)
        if event.kind == "assigned" and known:
            names = event.member, instance_id_of(None, event.member)
            found = [tps for name in names for tps in given[event.generation, name]]
            if frozenset(map(tuple, event.partitions)) not in found:
                has = " or ".join(str(sorted(tps)) for tps in found) or "no such member"
                yield Finding(
                    "assigned as stored",
                    f"{event.member} was assigned {sorted(map(str, event.partitions))} in generation "
                    f"{event.generation}, the coordinator has {has} ({event.where})",
                )


def only_current_generation_commits(run: Observed) -> Iterator[Finding]:
    """The generation in a commit's note is the one that the coordinator had stored last."""
    current: int | None = None
    for stored in run.stored:
        if stored.generation is not None:
            current = stored.generation
        elif stored.note is not None and current is not None and stored.note["generation"] != current:
            yield Finding(
                "current generation",
                f"{stored.tp}={stored.offset} was committed under {stored.note}, in generation {current}",
            )


def commits_never_ahead(run: Observed) -> Iterator[Finding]:
    """No member's commit is stored before a batch is done that ends there, unless the member was moved there before."""
    reached: dict[tuple[TP, int], float] = {}
    for batch in run.batches:
        for tp, end in batch.ends.items():
            if batch.done_ms is not None:
                reached[tp, end] = min(batch.done_ms, reached.get((tp, end), batch.done_ms))
    for event in run.events:
        for tp, move in event.moves.items():
            reached[tuple(tp), move.to] = min(event.time_ms, reached.get((tuple(tp), move.to), event.time_ms))
    last: dict[TP, int | None] = {}
    for stored in run.stored:
        if stored.tp is None:
            continue
        before, last[stored.tp] = last.get(stored.tp), stored.offset
        # A member puts its note on the offset of a neighbour from which it goes on.
        if not stored.offset or stored.note is None or stored.offset == before:
            continue
        since_ms = reached.get((stored.tp, stored.offset))
        if since_ms is None or since_ms > stored.time_ms + CLOCK_MS:
            when = "never" if since_ms is None else f"{since_ms - stored.time_ms:.0f} ms later"
            yield Finding(
                "never ahead", f"{stored.tp}={stored.offset} was stored, and a batch up to it was done {when}"
            )


def batches_follow(run: Observed) -> Iterator[Finding]:
    """Within a generation each batch begins where the last one ended, unless an event says that it was moved.

    A group that was deleted, as with its last offset, begins with generation 1 again. A member without a generation
    does not say when it joins again.
    """
    last: dict[tuple[str, int, str, int], tuple[int, int]] = {}
    latest: dict[str, int] = {}
    for event in run.events:
        if event.generation < latest.get(event.member, event.generation):
            last = {key: ended for key, ended in last.items() if key[0] != event.member}
        latest[event.member] = event.generation
        for tp in event.moves:
            last.pop((event.member, event.generation, *tp), None)
        for planned in event.ranges if event.generation != WITHOUT_MEMBERSHIP else ():
            key = (event.member, event.generation, *planned.tp)
            before = last.get(key)
            if before is not None and planned.start != before[1] and not event.replay:
                yield Finding(
                    "batches follow",
                    f"{planned} was planned after {before}, in generation {event.generation}: {event.where}",
                )
            last[key] = planned.start, planned.end


def tasks_cover(run: Observed) -> Iterator[Finding]:
    """The tasks of a batch have the ranges that their process planned last, each offset in one task.

    A process that loses the race for a batch plans ranges too, and no tasks: the checkpoint has those of the other one.
    So no task has an offset beyond the checkpoint's ranges, and each batch with rows has had tasks.
    """
    planned: dict[tuple[str, str, int | None], Event] = {
        (process_of(event).removesuffix("-also"), event.member, event.batch): event  # a log for each of two sources
        for event in run.events
        if event.kind == "planned"
    }
    logged: dict[tuple[str | None, int | None], Batch] = {}
    for batch in run.batches:
        logged.setdefault((batch.reader, batch.of_source), batch)  # later ones with this number have no data of it
    for plan in run.plans:
        parts = merged(part for task in plan.tasks for part in task)
        event = planned.get((plan.process, plan.reader, plan.batch))
        whole = [] if event is None else sorted((*r.tp, r.start, r.end) for r in event.ranges if r.size)
        if parts != whole:
            yield Finding(
                "tasks cover",
                f"batch {plan.batch} of {plan.process}: its tasks have {parts}, it was planned as {whole}",
            )
        of_log = logged.get((plan.reader, plan.batch))
        beyond = [] if of_log is None else [part for part in parts if not within(of_log, *part)]
        if beyond:
            yield Finding("tasks cover", f"batch {plan.batch} of {plan.process}: {beyond} are not in the checkpoint's")
    if len({plan.reader for plan in run.plans}) == len({batch.query for batch in run.batches}):  # one source each
        with_rows = {(row.query, row.batch) for row in run.rows}
        with_tasks = {(plan.reader, plan.batch) for plan in run.plans}
        for batch in run.batches:
            known = (batch.reader, batch.of_source) in with_tasks
            if not known and (batch.query, batch.number) in with_rows:
                yield Finding("tasks cover", f"batch {batch.number} of Spark's has rows, and had no tasks")


def merged(parts: Iterable[Sequence[Any]]) -> list[tuple[str, int, int, int]]:
    """Ranges of topics and partitions, those that follow each other as one."""
    found: list[tuple[str, int, int, int]] = []
    for topic, p, start, end in sorted(map(tuple, parts)):
        if found and found[-1][:2] == (topic, p) and found[-1][3] == start:
            found[-1] = (*found[-1][:3], end)
        else:
            found.append((topic, p, start, end))
    return found


def within(batch: Batch, topic: str, partition: int, start: int, end: int) -> bool:
    """Whether a batch has a range."""
    tp = topic, partition
    return tp in batch.ends and batch.starts[tp] <= start and end <= batch.ends[tp]
