"""The history of one partition of one group: plans, commits and moves, in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
