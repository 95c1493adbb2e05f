"""The progress of a query, in ``latestOffset``: the ends of logs, and under ``@group`` its place in the group."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_kafka_group.driver.query import Query
from spark_kafka_group.driver.steps.backlog import Backlog
from spark_kafka_group.values.offsets import GROUP_KEY, TopicPartition, positions_to_json
from spark_kafka_group.wire import Generation

MEANINGS = {
    "group": "`kafka.group.id`.",
    "member": "The member id that the coordinator gave to the query.",
    "protocol": "`classic`, or `consumer` (KIP-848) if the broker assigns the partitions.",
    "role": "`leader`, or `follower` if another member or the broker assigns the partitions.",
    "generation": "Generation that planned the micro-batch.",
    "strategy": "Assignment strategy of the generation, or the broker's assignor.",
    "timestampMs": "Time of the plan, in ms since 1970.",
    "assignedPartitions": "Partitions in the query's assignment.",
    "minOffsetsBehindLatest": "Lowest number of records between a partition's position and the end of its log.",
    "maxOffsetsBehindLatest": "Highest number of records between a partition's position and the end of its log.",
    "avgOffsetsBehindLatest": "Average number of records between positions and ends of logs.",
    "lag": "Records that were not committed when the micro-batch was planned, as Kafka's tools count it.",
    "lagSeconds": "Age of the oldest record that is not read.",
    "behindSinceMs": "By topic and partition: when the record at the position came, in ms since 1970.",
    "positions": "By topic and partition: the offset at which the micro-batch ends.",
    "committed": "By topic and partition: the group's committed offset.",
    "leaderlessSinceMs": "While partitions have no leader, and the query goes on without them: by topic and partition, "
    "since when, in ms since 1970.",
    "brokersAway": "While brokers are away: since when, how many attempts, and the last error.",
}
"""Keys under ``@group``; :class:`Metrics` has the others."""


@dataclass(frozen=True)
class Progress:
    """A query at one trigger, its micro-batch planned."""

    group_id: str
    generation: Generation
    strategy: str  # what assigned the partitions
    starts: Mapping[TopicPartition, int]  # where each owned partition stands before that batch
    positions: Mapping[TopicPartition, int]  # where it stands when the batch has succeeded
    ends: Mapping[TopicPartition, int]  # ends of the logs of owned partitions, as last looked up
    committed: Mapping[TopicPartition, int]  # what the group has, of owned partitions
    # Of partitions that are behind: when the record at their position was appended, as far as known
    since_ms: Mapping[TopicPartition, float]
    now_ms: float  # the moment of all this

    @property
    def behind(self) -> dict[TopicPartition, int]:
        """Offsets between positions and ends: Spark's offsets behind latest, Kafka's records-lag."""
        return {tp: max(0, end - self.positions[tp]) for tp, end in self.ends.items()}

    @property
    def lag(self) -> int:
        """Offsets that are not committed; of a partition of which nothing is, those that are not read."""
        return sum(max(0, end - self.committed.get(tp, self.starts[tp])) for tp, end in self.ends.items())

    def to_json(self) -> dict[str, Any]:
        """By the names that the progress shows."""
        behind = list(self.behind.values())
        group = {
            "group": self.group_id,
            "member": self.generation.member_id,
            "protocol": "consumer" if self.generation.by_broker else "classic",
            "role": "leader" if self.generation.leader else "follower",
            "generation": self.generation.id,
            "strategy": self.strategy,
            "timestampMs": round(self.now_ms),
            "assignedPartitions": len(self.generation.assignment),
            "minOffsetsBehindLatest": min(behind, default=0),
            "maxOffsetsBehindLatest": max(behind, default=0),
            "avgOffsetsBehindLatest": sum(behind) / len(behind) if behind else 0.0,
            "lag": self.lag,
            "lagSeconds": max((round((self.now_ms - ms) / 1000, 3) for ms in self.since_ms.values()), default=0.0),
            "behindSinceMs": positions_to_json({tp: round(ms) for tp, ms in self.since_ms.items()}),
            "positions": positions_to_json(self.positions),
            "committed": positions_to_json(self.committed),
        }
        return positions_to_json(self.ends) | {GROUP_KEY: group}


def progress_of(query: Query, backlog: Backlog) -> dict[str, Any] | None:
    """The progress of a query, its micro-batch planned; None before the first look at the ends of logs."""
    if backlog.looked_up_at is None:
        return None
    generation, planned = query.generation, query.committer.planned
    starts = {tp: at for tp, at in query.standing.starts(generation.assignment).items() if tp in backlog.ends}
    ahead = planned.end.positions if planned is not None else {}
    positions = {tp: ahead.get(tp, start) for tp, start in starts.items()}
    since = {tp: backlog.ages.since_ms(tp, at) for tp, at in positions.items()}
    now_ms, now_s = time.time() * 1000, time.monotonic()
    # The clock may have been set since; a backlog is no older for that.
    began_ms = now_ms - now_s * 1000
    progress = Progress(
        query.group_id,
        generation,
        query.member.strategy,
        starts,
        positions,
        ends={tp: backlog.ends[tp] for tp in starts},
        committed={tp: offset for tp, offset in query.committer.in_group.items() if tp in starts},
        since_ms={tp: began_ms + ms for tp, ms in since.items() if ms is not None},
        now_ms=now_ms,
    )
    client, shown = query.client, progress.to_json()
    leaderless = {tp: at_s for tp, at_s in backlog.leaderless.now.items() if tp in generation.assignment}
    if leaderless:
        since_ms = {tp: round(began_ms + at_s * 1000) for tp, at_s in leaderless.items()}
        shown[GROUP_KEY]["leaderlessSinceMs"] = positions_to_json(since_ms)
    shown[GROUP_KEY] |= query.metrics.to_json(client.timings, client.failed_rebalances, now_s, now_ms)
    return shown
