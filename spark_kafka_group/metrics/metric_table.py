"""The table of metrics: name, kind, unit and meaning of each number of a query and of its partitions.

The names are those of Kafka's consumer metrics, where Kafka has the number.
"""

from __future__ import annotations

from dataclasses import dataclass

GAUGE, COUNTER = "gauge", "counter"


@dataclass(frozen=True)
class Metric:
    """One number of a query, or of each of its partitions. `unit`, `doc`: for people."""

    name: str  # Kafka's name, if Kafka has the number
    kind: str  # whether it goes up and down, or only up while the query runs
    unit: str
    key: str  # its key in the progress, or the key that it is computed from
    doc: str


METRICS = (
    Metric("minOffsetsBehindLatest", GAUGE, "records", "minOffsetsBehindLatest",
           "Lowest `records-lag` of a partition, by the name of Spark's own source."),
    Metric("maxOffsetsBehindLatest", GAUGE, "records", "maxOffsetsBehindLatest",
           "Highest `records-lag` of a partition."),
    Metric("avgOffsetsBehindLatest", GAUGE, "records", "avgOffsetsBehindLatest",
           "Average `records-lag` of the partitions."),
    Metric("records-lag-max", GAUGE, "records", "maxOffsetsBehindLatest",
           "Highest `records-lag` of a partition, by Kafka's name."),
    Metric("records-lag-seconds-max", GAUGE, "seconds", "lagSeconds", "Highest `records-lag-seconds` of a partition."),
    Metric("records-consumed-total", COUNTER, "records", "numInputRows",
           "Input rows of the micro-batches that the listener saw end. Spark counts a row twice if a micro-batch "
           "reads its source twice."),
    Metric("batch-duration", GAUGE, "ms", "batchDuration",
           "Time of the last micro-batch that the listener saw, from its trigger to its end."),
    Metric("assigned-partitions", GAUGE, "partitions", "assignedPartitions", "Partitions that the query is assigned."),
    Metric("generation", GAUGE, "-", "generation", "Generation of the group at the last trigger."),
    Metric("commit-total", COUNTER, "commits", "commits", "Successful commits of source and listener."),
    Metric("failed-commit-total", COUNTER, "commits", "failedCommits",
           "Commits of source and listener that failed for good."),
    Metric("commit-latency-avg", GAUGE, "ms", "commitLatencyAvgMs",
           "Average time of the source's commits, with retries."),
    Metric("commit-latency-max", GAUGE, "ms", "commitLatencyMaxMs", "Longest time of a commit of the source."),
    Metric("last-commit-latency", GAUGE, "ms", "commitLatencyMs", "Time of the last commit."),
    Metric("last-commit-seconds-ago", GAUGE, "seconds", "lastCommitMs", "Time since the last successful commit."),
    Metric("rebalance-total", COUNTER, "rebalances", "rebalances",
           "Rebalances that the group asked for. Generations that a query alone in its group starts for micro-batches "
           "do not count."),
    Metric("failed-rebalance-total", COUNTER, "requests", "failedRebalances",
           "JoinGroups and SyncGroups that were refused, except while the coordinator was looked up."),
    Metric("memberships-lost-total", COUNTER, "times", "membershipsLost",
           "Times that the group removed the query, which then joined as a new member."),
    Metric("rebalance-latency-avg", GAUGE, "ms", "rebalanceLatencyAvgMs",
           "Average time of a rebalance, from giving partitions back to the new assignment."),
    Metric("rebalance-latency-max", GAUGE, "ms", "rebalanceLatencyMaxMs", "Longest time of a rebalance."),
    Metric("rebalance-latency-total", COUNTER, "ms", "rebalanceLatencyTotalMs",
           "Total time of rebalances since the query started."),
    Metric("last-rebalance-seconds-ago", GAUGE, "seconds", "lastRebalanceMs", "Time since the last rebalance ended."),
    Metric("join-total", COUNTER, "requests", "joins",
           "JoinGroups that the coordinator answered. A micro-batch's own generation takes one."),
    Metric("join-time-avg", GAUGE, "ms", "joinTimeAvgMs", "Average time from JoinGroup to its answer."),
    Metric("join-time-max", GAUGE, "ms", "joinTimeMaxMs", "Longest time from JoinGroup to its answer."),
    Metric("sync-total", COUNTER, "requests", "syncs", "SyncGroups that the coordinator answered."),
    Metric("sync-time-avg", GAUGE, "ms", "syncTimeAvgMs", "Average time from SyncGroup to its answer."),
    Metric("sync-time-max", GAUGE, "ms", "syncTimeMaxMs", "Longest time from SyncGroup to its answer."),
    Metric("heartbeat-total", COUNTER, "requests", "heartbeats", "Heartbeats that the coordinator answered."),
    Metric("heartbeat-response-time-max", GAUGE, "ms", "heartbeatResponseTimeMaxMs",
           "Longest time from a heartbeat to its answer."),
    Metric("last-heartbeat-seconds-ago", GAUGE, "seconds", "lastHeartbeatMs",
           "Time from the last answered heartbeat to the query's last progress. Heartbeats are counted at triggers "
           "only."),
    Metric("offset-conflicts-total", COUNTER, "partitions", "offsetConflicts",
           "Partitions whose offsets in checkpoint and group differed at the start."),
    Metric("data-losses-total", COUNTER, "times", "dataLosses",
           "Times that unread records were gone, with `failOnDataLoss=false`. Losses that executors find are in the "
           "executors' logs only."),
    Metric("offsets-lost-total", COUNTER, "offsets", "offsetsLost",
           "Unread offsets that were gone, as far as the number is known."),
    Metric("hook-errors-total", COUNTER, "errors", "hookErrors",
           "Exceptions of interceptors and the rebalance listener."),
    Metric("records-done-total", COUNTER, "records", "done", "Records that a RecordProcessor has done."),
    Metric("records-retried-total", COUNTER, "records", "retried",
           "Records that a RecordProcessor handed to a retry topic."),
    Metric("records-dead-total", COUNTER, "records", "dead",
           "Records that a RecordProcessor handed to a dead-letter topic."),
    Metric("handler-retries-total", COUNTER, "calls", "triesAgain",
           "Calls of a RecordProcessor's handler for a record that had failed."),
    Metric("handlers-stalled-total", COUNTER, "calls", "stalled",
           "Calls of a RecordProcessor's handler that were abandoned."),
    Metric("records-in-flight-max", GAUGE, "records", "mostInFlight",
           "Most records in the window of a RecordProcessor's task, in the last micro-batch."),
    Metric("oldest-cell-age-max", GAUGE, "ms", "oldestCellMs",
           "Longest time of a cell in the window of a RecordProcessor's task."),
    Metric("handler-latency-p50", GAUGE, "ms", "latencyMs",
           "Median time of a RecordProcessor's handler, in the last micro-batch."),
    Metric("handler-latency-p99", GAUGE, "ms", "latencyMs",
           "99th percentile of the time of a RecordProcessor's handler, in the last micro-batch."),
    Metric("last-progress-seconds-ago", GAUGE, "seconds", "timestampMs",
           "Time since the trigger that looked up the other numbers."),
    Metric("brokers-away-seconds", GAUGE, "seconds", "brokersAway",
           "Time since brokers stopped answering, as of the last trigger; 0 while they answer."),
    Metric("leaderless-partitions", GAUGE, "partitions", "leaderlessSinceMs",
           "Partitions without a leader, which the query does not read meanwhile."),
)  # fmt: skip
"""The numbers of a query; those of handlers are in ``observedMetrics["processing"]`` of its progress."""

HANDLED = frozenset(("done", "retried", "dead", "triesAgain", "stalled", "mostInFlight", "oldestCellMs", "latencyMs"))
"""Keys of those that only queries of a RecordProcessor have."""

PARTITION_METRICS = (
    Metric("records-lag", GAUGE, "records", "latestOffset",
           "End of the log minus the query's position, when the last micro-batch was planned."),
    Metric("records-lag-seconds", GAUGE, "seconds", "behindSinceMs",
           "Age of the first record that is not processed; 0 without such a record."),
    Metric("position", GAUGE, "offset", "positions",
           "Next offset that the query reads, after the last successful micro-batch."),
    Metric("log-end-offset", GAUGE, "offset", "latestOffset", "End of the log at the last trigger."),
)  # fmt: skip
"""The numbers of each of its partitions."""
