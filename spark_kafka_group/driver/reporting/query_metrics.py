"""Counts and times of one query, shown in its progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_kafka_group.values.timing import Timing
from spark_kafka_group.wire.reactions import Request


@dataclass
class Metrics:
    """Counts and times in the query's progress, since its process started.

    Attributes
    ----------
    rebalances
        Generations that the group, and not this query, asked for.
    rebalance
        How long they took, from giving partitions back to the new assignment.
    lost
        How often membership was lost.
    commit
        Commits that this process made and that succeeded, with retries.
    failed_commits
        Those that did not.
    offset_conflicts
        Partitions for which checkpoint and group disagreed.
    hook_errors
        Exceptions of the user's hooks.
    data_losses
        How often data were gone, with failOnDataLoss=false.
    offsets_lost
        How many offsets that were, as far as it can be known.
    """

    rebalances: int = 0
    rebalance: Timing = field(default_factory=Timing)
    lost: int = 0
    commit: Timing = field(default_factory=Timing)
    failed_commits: int = 0
    offset_conflicts: int = 0
    hook_errors: int = 0
    data_losses: int = 0
    offsets_lost: int = 0

    def to_json(
        self, requests: Mapping[Request, Timing], failed_rebalances: int, now_s: float, now_ms: float
    ) -> dict[str, float | None]:
        """By their names in the progress; None for an event that has not happened, or not lately.

        Parameters
        ----------
        requests
            Requests that the coordinator answered without an error.
        failed_rebalances
            Joins that it refused.
        now_s, now_ms
            Now, by the clock of the timings and by that of the wall.
        """
        join, sync, beat = (requests[request] for request in (Request.JOIN, Request.SYNC, Request.HEARTBEAT))

        def at_ms(timing: Timing) -> int | None:
            ago_s = timing.ago_s(now_s)
            return None if ago_s is None else round(now_ms - ago_s * 1000)

        # One row for each number: split up, it would not be read as the table that it is.
        shown = {
            "commits": self.commit.count,
            "failedCommits": self.failed_commits,
            "commitLatencyMs": self.commit.last_ms,
            "commitLatencyAvgMs": self.commit.avg_ms(now_s),
            "commitLatencyMaxMs": self.commit.max_ms(now_s),
            "lastCommitMs": at_ms(self.commit),
            "rebalances": self.rebalances,
            "failedRebalances": failed_rebalances,
            "membershipsLost": self.lost,
            "rebalanceLatencyAvgMs": self.rebalance.avg_ms(now_s),
            "rebalanceLatencyMaxMs": self.rebalance.max_ms(now_s),
            "rebalanceLatencyTotalMs": self.rebalance.total_ms,
            "lastRebalanceMs": at_ms(self.rebalance),
            "joins": join.count,
            "joinTimeAvgMs": join.avg_ms(now_s),
            "joinTimeMaxMs": join.max_ms(now_s),
            "syncs": sync.count,
            "syncTimeAvgMs": sync.avg_ms(now_s),
            "syncTimeMaxMs": sync.max_ms(now_s),
            "heartbeats": beat.count,
            "heartbeatResponseTimeMaxMs": beat.max_ms(now_s),
            "lastHeartbeatMs": at_ms(beat),
            "offsetConflicts": self.offset_conflicts,
            "hookErrors": self.hook_errors,
            "dataLosses": self.data_losses,
            "offsetsLost": self.offsets_lost,
        }
        return {name: round(value, 3) if isinstance(value, float) else value for name, value in shown.items()}
