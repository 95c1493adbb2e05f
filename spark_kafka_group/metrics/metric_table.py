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


def markdown_table() -> str:
    """The table of metrics in docs/metrics.md."""
    lines = ["| metric | unit | in the progress | meaning |", "|---|---|---|---|"]
    for metric, suffix in [*((m, "") for m in METRICS), *((m, ", per partition") for m in PARTITION_METRICS)]:
        lines.append(f"| `{metric.name}` | {metric.unit}{suffix} | `{metric.key}` | {metric.doc} |")
    return "\n".join(lines)
