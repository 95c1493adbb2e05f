"""Micro-batches from plan to commit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from spark_kafka_group.pictures.logged_run import Member
from spark_kafka_group.tools.event_logs import Event


@dataclass(frozen=True)
class BatchSpan:
    """A plan of a micro-batch, and its commit.

    Attributes
    ----------
    member, batch, replay
        Whose it is, its number, and whether it is read again after a crash.
    from_ms
        When it was planned, ms since the epoch.
    to_ms
        When it was committed; None where no event says so.
    planned, committed
        Records: offsets of its ranges, and of those whose end was committed.
    """

    member: Member
    batch: int
    replay: bool
    from_ms: float
    to_ms: float | None
    planned: int
    committed: int = 0


def batch_spans(events: Iterable[Event]) -> tuple[BatchSpan, ...]:
    """Batches in order of their plans; `events` are in order of time."""
    found: list[BatchSpan] = []
    open_plans: dict[tuple[Member, int | None], tuple[int, Event]] = {}
    for event in events:
        member = (event.group, event.member)
        if event.kind == "planned" and event.batch is not None:
            open_plans[member, event.batch] = (len(found), event)
            planned = sum(found_range.size for found_range in event.ranges)
            found.append(BatchSpan(member, event.batch, event.replay, event.time_ms, None, planned))
        elif event.kind == "committed" and (member, event.batch) in open_plans:
            place, plan = open_plans.pop((member, event.batch))
            committed = sum(r.size for r in plan.ranges if event.offsets.get(r.tp) == r.end)
            found[place] = replace(found[place], to_ms=max(event.time_ms, plan.time_ms), committed=committed)
    return tuple(found)
