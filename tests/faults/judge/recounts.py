"""Metrics of a query, each with its recount from other evidence: checkpoint, group, logs, stored generations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from faults.checkpoint import TP, positions
from faults.judge.evidence import Observed
from spark_kafka_group.metrics.group_metrics import ListenersCommits, metrics_of

Recount = tuple[str, Any, Any]
"""A metric, its value in the progress, and its value by recount."""


def recounted(run: Observed, latest: Mapping[str, Any]) -> Iterator[Recount]:
    """Of one source, by its ``latestOffset`` at rest."""
    group = latest["@group"]
    metrics = metrics_of("query", latest, ListenersCommits(), group["timestampMs"])
    owned = owned_by(run, group)
    lags = [max(0, run.ends[tp] - run.ended.get(tp, 0)) for tp in owned if tp in run.ends]
    for tp in owned:
        shown = metrics.partitions.get(tp, {})  # type: ignore[call-overload]
        yield f"position of {tp}", shown.get("position"), run.ended.get(tp, 0)  # without a record yet it is in no batch
        yield f"log-end-offset of {tp}", shown.get("log-end-offset"), run.ends.get(tp)
        yield f"records-lag of {tp}", shown.get("records-lag"), run.ends.get(tp, 0) - run.ended.get(tp, 0)
    yield "partitions", sorted(map(tuple, metrics.partitions)), sorted(owned)
    yield "committed", positions(group["committed"]), {tp: at for tp, at in run.committed.items() if tp in owned}
    for name, recount in (
        ("assigned-partitions", len(owned)),
        ("minOffsetsBehindLatest", min(lags, default=0)),
        ("maxOffsetsBehindLatest", max(lags, default=0)),
        ("avgOffsetsBehindLatest", sum(lags) / len(lags) if lags else 0),
        ("records-lag-max", max(lags, default=0)),
        ("records-lag-seconds-max", 0.0),
        ("brokers-away-seconds", 0.0),
        ("leaderless-partitions", 0),
    ):
        yield name, metrics[name], recount
    if group["protocol"] == "classic":
        yield "generation", metrics["generation"], generation_of(run, group["member"])
        commits = commits_of(run)
        if metrics["commit-total"] > commits:  # type: ignore[operator] # a repeated commit is stored more than once
            yield "commit-total", metrics["commit-total"], commits


def owned_by(run: Observed, group: Mapping[str, Any]) -> list[TP]:
    """Partitions that the group has given to a member, by the last stored generation that has it.

    All of them where the broker assigns: it stores no generations, and at rest there is no other member.
    """
    if group["protocol"] != "classic":
        return sorted(run.ends)
    for stored in reversed(run.stored):
        if group["member"] in stored.members:
            return [(topic, number) for topic, number in stored.members[group["member"]]]
    return []


def generation_of(run: Observed, member: str) -> int | None:
    """The last stored generation that has a member."""
    return next((stored.generation for stored in reversed(run.stored) if member in stored.members), None)


def commits_of(run: Observed) -> int:
    """Commits of queries that the group has stored, since the last process began and until it showed its numbers."""
    made = {
        (stored.time_ms, str(stored.note))
        for stored in run.stored
        if stored.note is not None and run.shown.since_ms <= stored.time_ms <= run.shown.until_ms
    }
    return len(made)
