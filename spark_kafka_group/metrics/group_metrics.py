"""A query's place in its group as numbers, under the names of Kafka's consumer metrics. Values only, no I/O.

They come from the progress of Spark's query, in which the source shows them under the names that Spark's style has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from spark_kafka_group.offsets import GROUP_KEY, TopicPartition, positions_from_json

GAUGE, COUNTER = "gauge", "counter"
OBSERVED = "processing"
"""Name of the handlers' numbers of a micro-batch, in ``observedMetrics`` of its progress."""


@dataclass(frozen=True)
class Metric:
    """One number of a query, or of each of its partitions.

    Attributes
    ----------
    name
        Kafka's name of it, where Kafka has it.
    kind
        Whether it goes up and down, or only up while the query runs.
    unit, doc
        For people.
    key
        Its key in the progress, or the key that it is computed from.
    """

    name: str
    kind: str
    unit: str
    doc: str
    key: str


METRICS = (
    Metric(
        "minOffsetsBehindLatest",
        GAUGE,
        "records",
        "Lowest `records-lag` of the query's partitions, by the name of Spark's own source.",
        "minOffsetsBehindLatest",
    ),
    Metric(
        "maxOffsetsBehindLatest",
        GAUGE,
        "records",
        "Highest `records-lag` of the query's partitions.",
        "maxOffsetsBehindLatest",
    ),
    Metric(
        "avgOffsetsBehindLatest",
        GAUGE,
        "records",
        "Average `records-lag` of the query's partitions.",
        "avgOffsetsBehindLatest",
    ),
    Metric(
        "records-lag-max",
        GAUGE,
        "records",
        "Highest `records-lag` of the query's partitions, by Kafka's name.",
        "maxOffsetsBehindLatest",
    ),
    Metric(
        "records-lag-seconds-max",
        GAUGE,
        "seconds",
        "Highest `records-lag-seconds` of the query's partitions.",
        "lagSeconds",
    ),
    Metric(
        "records-consumed-total",
        COUNTER,
        "records",
        "Input rows of the source in micro-batches that the listener saw end. Spark counts a row twice in a "
        "micro-batch that reads its source twice.",
        "numInputRows",
    ),
    Metric(
        "batch-duration",
        GAUGE,
        "ms",
        "Time of the last micro-batch that the listener saw end, from its trigger on.",
        "batchDuration",
    ),
    Metric("assigned-partitions", GAUGE, "partitions", "Partitions in the query's assignment.", "assignedPartitions"),
    Metric("generation", GAUGE, "-", "Generation of the consumer group, as of the last trigger.", "generation"),
    Metric(
        "commit-total",
        COUNTER,
        "commits",
        "Commits that succeeded, of the source and of the listener.",
        "commits",
    ),
    Metric(
        "failed-commit-total",
        COUNTER,
        "commits",
        "Commits that failed for good, of the source and of the listener.",
        "failedCommits",
    ),
    Metric(
        "commit-latency-avg", GAUGE, "ms", "Average time of the source's commits, with retries.", "commitLatencyAvgMs"
    ),
    Metric(
        "commit-latency-max", GAUGE, "ms", "Longest time of the source's commits, with retries.", "commitLatencyMaxMs"
    ),
    Metric(
        "last-commit-latency",
        GAUGE,
        "ms",
        "Time of the last commit, of the source or of the listener.",
        "commitLatencyMs",
    ),
    Metric(
        "last-commit-seconds-ago",
        GAUGE,
        "seconds",
        "Time since the last commit that succeeded, of the source or of the listener.",
        "lastCommitMs",
    ),
    Metric(
        "rebalance-total",
        COUNTER,
        "rebalances",
        "Rebalances that the group asked for. A generation that a query alone in its group starts for a "
        "micro-batch does not count.",
        "rebalances",
    ),
    Metric(
        "failed-rebalance-total",
        COUNTER,
        "requests",
        "JoinGroups and SyncGroups that were refused, except while the coordinator was looked up.",
        "failedRebalances",
    ),
    Metric(
        "memberships-lost-total",
        COUNTER,
        "times",
        "Times that the group had removed the query, which then joined as a new member.",
        "membershipsLost",
    ),
    Metric(
        "rebalance-latency-avg",
        GAUGE,
        "ms",
        "Average time of a rebalance, from giving partitions back to the new assignment.",
        "rebalanceLatencyAvgMs",
    ),
    Metric(
        "rebalance-latency-max",
        GAUGE,
        "ms",
        "Longest time of a rebalance, from giving partitions back to the new assignment.",
        "rebalanceLatencyMaxMs",
    ),
    Metric(
        "rebalance-latency-total",
        COUNTER,
        "ms",
        "Total time of all rebalances since the query began.",
        "rebalanceLatencyTotalMs",
    ),
    Metric("last-rebalance-seconds-ago", GAUGE, "seconds", "Time since the last rebalance ended.", "lastRebalanceMs"),
    Metric(
        "join-total",
        COUNTER,
        "requests",
        "JoinGroups that the coordinator answered. A micro-batch's own generation takes one.",
        "joins",
    ),
    Metric("join-time-avg", GAUGE, "ms", "Average time from JoinGroup to its answer.", "joinTimeAvgMs"),
    Metric("join-time-max", GAUGE, "ms", "Longest time from JoinGroup to its answer.", "joinTimeMaxMs"),
    Metric("sync-total", COUNTER, "requests", "SyncGroups that the coordinator answered.", "syncs"),
    Metric("sync-time-avg", GAUGE, "ms", "Average time from SyncGroup to its answer.", "syncTimeAvgMs"),
    Metric("sync-time-max", GAUGE, "ms", "Longest time from SyncGroup to its answer.", "syncTimeMaxMs"),
    Metric("heartbeat-total", COUNTER, "requests", "Heartbeats that the coordinator answered.", "heartbeats"),
    Metric(
        "heartbeat-response-time-max",
        GAUGE,
        "ms",
        "Longest time from a heartbeat to its answer.",
        "heartbeatResponseTimeMaxMs",
    ),
    Metric(
        "last-heartbeat-seconds-ago",
        GAUGE,
        "seconds",
        "Time from the last heartbeat that was answered to the query's last progress. "
        "Heartbeats are counted at triggers only.",
        "lastHeartbeatMs",
    ),
    Metric(
        "offset-conflicts-total",
        COUNTER,
        "partitions",
        "Partitions whose offsets in checkpoint and group differed at the start.",
        "offsetConflicts",
    ),
    Metric(
        "data-losses-total",
        COUNTER,
        "times",
        "Times that unread records were gone, with `failOnDataLoss=false`. Losses that executors find are "
        "in the executors' logs only.",
        "dataLosses",
    ),
    Metric(
        "offsets-lost-total",
        COUNTER,
        "offsets",
        "Offsets of unread records that were gone, as far as the number can be known.",
        "offsetsLost",
    ),
    Metric(
        "hook-errors-total",
        COUNTER,
        "errors",
        "Exceptions that the query's interceptors and rebalance listener raised.",
        "hookErrors",
    ),
    Metric("records-done-total", COUNTER, "records", "Records that the handler of a RecordProcessor has done.", "done"),
    Metric(
        "records-retried-total",
        COUNTER,
        "records",
        "Records that a RecordProcessor handed to a retry topic.",
        "retried",
    ),
    Metric(
        "records-dead-total",
        COUNTER,
        "records",
        "Records that a RecordProcessor handed to a dead-letter topic.",
        "dead",
    ),
    Metric(
        "handler-retries-total",
        COUNTER,
        "calls",
        "Calls of a RecordProcessor's handler for a record that had failed.",
        "triesAgain",
    ),
    Metric(
        "handlers-stalled-total",
        COUNTER,
        "calls",
        "Calls of a RecordProcessor's handler that were abandoned.",
        "stalled",
    ),
    Metric(
        "records-in-flight-max",
        GAUGE,
        "records",
        "Most records in the window of a RecordProcessor's task, in the last micro-batch.",
        "mostInFlight",
    ),
    Metric(
        "oldest-cell-age-max",
        GAUGE,
        "ms",
        "Longest time of a cell in the window of a RecordProcessor's task.",
        "oldestCellMs",
    ),
    Metric(
        "handler-latency-p50",
        GAUGE,
        "ms",
        "Median time of the calls of a RecordProcessor's handler in the last micro-batch.",
        "latencyMs",
    ),
    Metric(
        "handler-latency-p99",
        GAUGE,
        "ms",
        "99th percentile of the time of the calls of a RecordProcessor's handler in the last micro-batch.",
        "latencyMs",
    ),
    Metric(
        "last-progress-seconds-ago",
        GAUGE,
        "seconds",
        "Time since the trigger that looked up the query's other numbers.",
        "timestampMs",
    ),
    Metric(
        "brokers-away-seconds",
        GAUGE,
        "seconds",
        "Time since brokers stopped answering the query, as of its last trigger; 0 while brokers answer.",
        "brokersAway",
    ),
)
"""The numbers of a query; those of handlers are in ``observedMetrics["processing"]`` of its progress."""

HANDLED = frozenset(("done", "retried", "dead", "triesAgain", "stalled", "mostInFlight", "oldestCellMs", "latencyMs"))
"""Keys of those that only queries of a RecordProcessor have."""

PARTITION_METRICS = (
    Metric(
        "records-lag",
        GAUGE,
        "records",
        "End of the partition's log, as looked up when the last micro-batch was planned, minus the query's position.",
        "latestOffset",
    ),
    Metric(
        "records-lag-seconds",
        GAUGE,
        "seconds",
        "Age of the partition's first record that is not processed; 0 without one.",
        "behindSinceMs",
    ),
    Metric(
        "position",
        GAUGE,
        "offset",
        "Next offset that the query reads of the partition, after the last micro-batch that succeeded.",
        "positions",
    ),
    Metric(
        "log-end-offset",
        GAUGE,
        "offset",
        "End of the partition's log, as the last trigger looked it up.",
        "latestOffset",
    ),
)
"""The numbers of each of its partitions."""


@dataclass(frozen=True)
class ListenersCommits:
    """Commits that the listener made for one source of a query.

    Attributes
    ----------
    done, failed
        How many.
    last_ms, last_latency_ms
        When the last one succeeded, by the clock on the wall, and how long it took.
    """

    done: int = 0
    failed: int = 0
    last_ms: float | None = None
    last_latency_ms: float = 0.0


@dataclass(frozen=True)
class EndedBatches:
    """Micro-batches of a query that the listener saw end.

    Attributes
    ----------
    records
        Input rows of one of the query's sources.
    last_ms
        How long the last of them took; None before the first.
    """

    records: int = 0
    last_ms: float | None = None

    def then(self, records: int, duration_ms: float) -> EndedBatches:
        """These micro-batches and another one."""
        return EndedBatches(self.records + records, duration_ms)


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
    """

    query: str
    group: str = ""
    member: str = ""
    role: str = ""
    strategy: str = ""
    values: Mapping[str, float | None] = field(default_factory=dict)
    partitions: Mapping[TopicPartition, Mapping[str, float]] = field(default_factory=dict)

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
    """The numbers of a query's handlers, by metric, after another micro-batch.

    Parameters
    ----------
    before
        The result for the micro-batch before; empty before the first.
    observed
        ``observedMetrics["processing"]``, whose values are None when the micro-batch had no records.
    """
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
    """A source's numbers at this moment.

    Parameters
    ----------
    latest
        The source's ``latestOffset`` in the query's last progress; empty if it has none.
    listeners
        The listener's commits since that source began.
    handlers
        The result of :func:`handled` for the query's last micro-batch.
    batches
        Micro-batches of the query that have ended.
    """
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
    values["brokers-away-seconds"] = _away_s(group) if group else None
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


def _away_s(group: Mapping[str, Any]) -> float:
    return _seconds(group.get("brokersAway", {}).get("sinceMs"), group.get("timestampMs")) or 0.0


def _seconds(from_ms: float | None, to_ms: float | None) -> float | None:
    return None if from_ms is None or to_ms is None else round(max(0.0, to_ms - from_ms) / 1000, 3)


def markdown_table() -> str:
    """The table of metrics in docs/metrics.md."""
    lines = ["| metric | unit | in the progress | meaning |", "|---|---|---|---|"]
    for metric, suffix in [*((m, "") for m in METRICS), *((m, ", per partition") for m in PARTITION_METRICS)]:
        lines.append(f"| `{metric.name}` | {metric.unit}{suffix} | `{metric.key}` | {metric.doc} |")
    return "\n".join(lines)
