"""A query's place in its group as numbers, under the names of Kafka's consumer metrics. Values only, no I/O.

They come from the progress of Spark's query, in which the source shows them under the names that Spark's style has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, SupportsFloat

from spark_kafka_group.metrics.metric_table import COUNTER, HANDLED, METRICS
from spark_kafka_group.values.offsets import GROUP_KEY, TopicPartition, positions_from_json

OBSERVED = "processing"  # name of the handlers' numbers of a micro-batch, in ``observedMetrics`` of its progress


@dataclass(frozen=True)
class ListenersCommits:
    """Commits that the listener made for one source of a query. `done`, `failed`: how many. `last_ms`,
    `last_latency_ms`: when the last one succeeded, by the clock on the wall, and how long it took."""

    done: int = 0
    failed: int = 0
    last_ms: float | None = None
    last_latency_ms: float = 0.0


@dataclass(frozen=True)
class EndedBatches:
    """Micro-batches of a query that the listener saw end.

    `observed`: by observation and name, a number of ``DataFrame.observe`` in the last of them, and its sum.
    """

    records: int = 0  # input rows of one of the query's sources
    last_ms: float | None = None  # how long the last of them took; None before the first
    observed: Mapping[tuple[str, str], tuple[float, float]] = field(default_factory=dict)

    def then(
        self, records: int, duration_ms: float, observed: Mapping[str, Any] = MappingProxyType({})
    ) -> EndedBatches:
        """These micro-batches and another one, with Rows of its `observed` numbers; those of handlers have metrics."""
        rows = {name: row.asDict() for name, row in observed.items() if name != OBSERVED}
        numbers = {
            (name, key): n for name, row in rows.items() for key, n in row.items() if isinstance(n, SupportsFloat)
        }
        sums = {names: (float(n), self.observed.get(names, (0, 0))[1] + float(n)) for names, n in numbers.items()}
        return EndedBatches(self.records + records, duration_ms, {**self.observed, **sums})


@dataclass(frozen=True, repr=False)
class GroupMetrics:
    """One groupkafka source of a query, as a member of its group.

    Attributes
    ----------
    query
        The query's name, or its id if it has none.
    group, member, role, strategy
        Of the consumer group; empty where the progress does not have it yet, as after a replayed batch.
    values
        Numbers by the names of :data:`METRICS`; None is unknown, or has not happened (lately).
    partitions
        Numbers by the names of :data:`PARTITION_METRICS`, of each assigned partition.
    batches
        The query's micro-batches, with what the query observes.
    """

    query: str
    group: str = ""
    member: str = ""
    role: str = ""
    strategy: str = ""
    values: Mapping[str, float | None] = field(default_factory=dict)
    partitions: Mapping[TopicPartition, Mapping[str, float]] = field(default_factory=dict)
    batches: EndedBatches = EndedBatches()

    def __repr__(self) -> str:
        if not self.group:
            return f"<GroupMetrics of {self.query}>"
        lag, generation = self.values.get("records-lag-max"), self.values.get("generation")
        behind = "" if lag is None else f", at most {lag:.0f} records behind"
        member = "" if generation is None else f", generation {generation:.0f}"
        return f"<GroupMetrics of {self.query}: group {self.group}{member}, {len(self.partitions)} partitions{behind}>"

    def __getitem__(self, name: str) -> float | None:
        """A number by its name, such as ``"records-lag-max"``."""
        return self.values[name]


def handled(before: Mapping[str, float | None], observed: Mapping[str, Any]) -> dict[str, float | None]:
    """The numbers of a query's handlers, by metric, after another micro-batch. `before`: the result for the micro-batch
    before; empty before the first. `observed`: ``observedMetrics["processing"]``, whose values are None when the
    micro-batch had no records."""
    if not observed["records"]:
        return dict(before)
    latency = dict(
        zip(("handler-latency-p50", "handler-latency-p99"), observed["latencyMs"] or (None, None), strict=True)
    )
    values = {m.name: latency[m.name] if m.key == "latencyMs" else observed[m.key] for m in METRICS if m.key in HANDLED}
    totals = (m.name for m in METRICS if m.key in HANDLED and m.kind == COUNTER)
    return values | {name: (before.get(name) or 0) + values[name] for name in totals}


def metrics_of(
    query: str,
    latest: Mapping[str, Any],
    listeners: ListenersCommits,
    now_ms: float,
    handlers: Mapping[str, float | None] = MappingProxyType({}),
    batches: EndedBatches = EndedBatches(),
) -> GroupMetrics:
    """A source's numbers at this moment. `latest`: the source's ``latestOffset`` in the query's last progress; empty if
    it has none. `listeners`: the listener's commits since that source began. `handlers`: the result of :func:`handled`
    for the query's last micro-batch. `batches`: micro-batches of the query that have ended."""
    group = latest.get(GROUP_KEY, {})
    partitions = _partitions(latest, now_ms)
    values = {**_values(group, partitions, listeners, now_ms), **handlers}
    values["records-consumed-total"], values["batch-duration"] = batches.records, batches.last_ms
    return GroupMetrics(
        query,
        group.get("group", ""),
        group.get("member", ""),
        group.get("role", ""),
        group.get("strategy", ""),
        MappingProxyType({m.name: values[m.name] for m in METRICS}),
        MappingProxyType(partitions),
        batches,
    )


def _values(
    group: Mapping[str, Any],
    partitions: Mapping[TopicPartition, Mapping[str, float]],
    listeners: ListenersCommits,
    now_ms: float,
) -> dict[str, float | None]:
    """The numbers of :func:`metrics_of`, without those of handlers."""
    values: dict[str, float | None] = {m.name: None if m.key in HANDLED else group.get(m.key) for m in METRICS}
    values["commit-total"] = (values["commit-total"] or 0) + listeners.done
    values["failed-commit-total"] = (values["failed-commit-total"] or 0) + listeners.failed
    last_commit_ms = group.get("lastCommitMs")
    if last_commit_ms is None:
        values["last-commit-latency"] = None
    if listeners.last_ms is not None and listeners.last_ms > (last_commit_ms or 0):
        last_commit_ms, values["last-commit-latency"] = listeners.last_ms, listeners.last_latency_ms
    seen_ms = group.get("timestampMs")
    values["records-lag-seconds-max"] = (
        max((p["records-lag-seconds"] for p in partitions.values()), default=0.0) if group else None
    )
    values["last-commit-seconds-ago"] = _seconds(last_commit_ms, now_ms)
    values["last-rebalance-seconds-ago"] = _seconds(group.get("lastRebalanceMs"), now_ms)
    values["last-heartbeat-seconds-ago"] = _seconds(group.get("lastHeartbeatMs"), seen_ms)
    values["last-progress-seconds-ago"] = _seconds(seen_ms, now_ms)
    away_s = _seconds(group.get("brokersAway", {}).get("sinceMs"), seen_ms)
    values["brokers-away-seconds"] = away_s or 0.0 if group else None
    leaderless = positions_from_json(group.get("leaderlessSinceMs", {}), "leaderlessSinceMs")
    values["leaderless-partitions"] = len(leaderless) if group else None
    return values


def _partitions(latest: Mapping[str, Any], now_ms: float) -> dict[TopicPartition, Mapping[str, float]]:
    group = latest.get(GROUP_KEY, {})
    ends = positions_from_json({topic: ends for topic, ends in latest.items() if topic != GROUP_KEY}, "latestOffset")
    positions = positions_from_json(group.get("positions", {}), "positions")
    since_ms = positions_from_json(group.get("behindSinceMs", {}), "behindSinceMs")
    return {
        tp: MappingProxyType(
            {
                "records-lag": max(0, end - positions[tp]),
                "records-lag-seconds": _seconds(since_ms.get(tp), now_ms) or 0.0,
                "position": positions[tp],
                "log-end-offset": end,
            }
        )
        for tp, end in ends.items()
        if tp in positions
    }


def _seconds(from_ms: float | None, to_ms: float | None) -> float | None:
    return None if from_ms is None or to_ms is None else round(max(0.0, to_ms - from_ms) / 1000, 3)
