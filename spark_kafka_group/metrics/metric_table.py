"""The table of metrics: name, kind, unit and meaning of each number of a query and of its partitions.

The names are those of Kafka's consumer metrics, where Kafka has the number.
"""

from __future__ import annotations

from dataclasses import dataclass

GAUGE, COUNTER = "gauge", "counter"


@dataclass(frozen=True)
class Metric:
    """One number of a query, or of each of its partitions.

    Attributes
    ----------
    name
        Kafka's name, if Kafka has the number.
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
        "Lowest `records-lag` of a partition, by the name of Spark's own source.",
        "minOffsetsBehindLatest",
    ),
    Metric(
        "maxOffsetsBehindLatest",
        GAUGE,
        "records",
        "Highest `records-lag` of a partition.",
        "maxOffsetsBehindLatest",
    ),
    Metric(
        "avgOffsetsBehindLatest",
        GAUGE,
        "records",
        "Average `records-lag` of the partitions.",
        "avgOffsetsBehindLatest",
    ),
    Metric(
        "records-lag-max",
        GAUGE,
        "records",
        "Highest `records-lag` of a partition, by Kafka's name.",
        "maxOffsetsBehindLatest",
    ),
    Metric(
        "records-lag-seconds-max",
        GAUGE,
        "seconds",
        "Highest `records-lag-seconds` of a partition.",
        "lagSeconds",
    ),
    Metric(
        "records-consumed-total",
        COUNTER,
        "records",
        "Input rows of the micro-batches that the listener saw end. Spark counts a row twice if a micro-batch "
        "reads its source twice.",
        "numInputRows",
    ),
    Metric(
        "batch-duration",
        GAUGE,
        "ms",
        "Time of the last micro-batch that the listener saw, from its trigger to its end.",
        "batchDuration",
    ),
    Metric("assigned-partitions", GAUGE, "partitions", "Partitions that the query is assigned.", "assignedPartitions"),
    Metric("generation", GAUGE, "-", "Generation of the group at the last trigger.", "generation"),
    Metric(
        "commit-total",
        COUNTER,
        "commits",
        "Successful commits of source and listener.",
        "commits",
    ),
    Metric(
        "failed-commit-total",
        COUNTER,
        "commits",
        "Commits of source and listener that failed for good.",
        "failedCommits",
    ),
    Metric(
        "commit-latency-avg", GAUGE, "ms", "Average time of the source's commits, with retries.", "commitLatencyAvgMs"
    ),
    Metric("commit-latency-max", GAUGE, "ms", "Longest time of a commit of the source.", "commitLatencyMaxMs"),
    Metric(
        "last-commit-latency",
        GAUGE,
        "ms",
        "Time of the last commit.",
        "commitLatencyMs",
    ),
    Metric(
        "last-commit-seconds-ago",
        GAUGE,
        "seconds",
        "Time since the last successful commit.",
        "lastCommitMs",
    ),
    Metric(
        "rebalance-total",
        COUNTER,
        "rebalances",
        "Rebalances that the group asked for. Generations that a query alone in its group starts for "
        "micro-batches do not count.",
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
        "Times that the group removed the query, which then joined as a new member.",
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
        "Longest time of a rebalance.",
        "rebalanceLatencyMaxMs",
    ),
    Metric(
        "rebalance-latency-total",
        COUNTER,
        "ms",
        "Total time of rebalances since the query started.",
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
        "Time from the last answered heartbeat to the query's last progress. Heartbeats are counted at triggers only.",
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
        "Unread offsets that were gone, as far as the number is known.",
        "offsetsLost",
    ),
    Metric(
        "hook-errors-total",
        COUNTER,
        "errors",
        "Exceptions of interceptors and the rebalance listener.",
        "hookErrors",
    ),
    Metric("records-done-total", COUNTER, "records", "Records that a RecordProcessor has done.", "done"),
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
        "Median time of a RecordProcessor's handler, in the last micro-batch.",
        "latencyMs",
    ),
    Metric(
        "handler-latency-p99",
        GAUGE,
        "ms",
        "99th percentile of the time of a RecordProcessor's handler, in the last micro-batch.",
        "latencyMs",
    ),
    Metric(
        "last-progress-seconds-ago",
        GAUGE,
        "seconds",
        "Time since the trigger that looked up the other numbers.",
        "timestampMs",
    ),
    Metric(
        "brokers-away-seconds",
        GAUGE,
        "seconds",
        "Time since brokers stopped answering, as of the last trigger; 0 while they answer.",
        "brokersAway",
    ),
    Metric(
        "leaderless-partitions",
        GAUGE,
        "partitions",
        "Partitions without a leader, which the query does not read meanwhile.",
        "leaderlessSinceMs",
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
        "End of the log minus the query's position, when the last micro-batch was planned.",
        "latestOffset",
    ),
    Metric(
        "records-lag-seconds",
        GAUGE,
        "seconds",
        "Age of the first record that is not processed; 0 without such a record.",
        "behindSinceMs",
    ),
    Metric(
        "position",
        GAUGE,
        "offset",
        "Next offset that the query reads, after the last successful micro-batch.",
        "positions",
    ),
    Metric(
        "log-end-offset",
        GAUGE,
        "offset",
        "End of the log at the last trigger.",
        "latestOffset",
    ),
)
"""The numbers of each of its partitions."""


def markdown_table() -> str:
    """The table of metrics in docs/metrics.md."""
    lines = ["| metric | unit | in the progress | meaning |", "|---|---|---|---|"]
    for metric, suffix in [*((m, "") for m in METRICS), *((m, ", per partition") for m in PARTITION_METRICS)]:
        lines.append(f"| `{metric.name}` | {metric.unit}{suffix} | `{metric.key}` | {metric.doc} |")
    return "\n".join(lines)
