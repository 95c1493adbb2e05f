"""Counts and times of one query, shown in its progress, and the age of its backlog by lookups that were made anyway."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.values.timing import Timing
from spark_kafka_group.wire.reactions import Request


@dataclass
class Metrics:
    """Counts and times in the query's progress, since its process started."""

    rebalances: int = 0  # generations that the group, and not this query, asked for
    # How long they took, from giving partitions back to the new assignment
    rebalance: Timing = field(default_factory=Timing)
    lost: int = 0  # how often membership was lost
    commit: Timing = field(default_factory=Timing)  # commits that this process made and that succeeded, with retries
    failed_commits: int = 0  # those that did not
    offset_conflicts: int = 0  # partitions for which checkpoint and group disagreed
    hook_errors: int = 0  # exceptions of the user's hooks
    data_losses: int = 0  # how often data were gone, with failOnDataLoss=false
    offsets_lost: int = 0  # how many offsets that were, as far as it can be known

    def to_json(
        self, requests: Mapping[Request, Timing], failed_rebalances: int, now_s: float, now_ms: float
    ) -> dict[str, float | None]:
        """By their names in the progress; None for an event that has not happened, or not lately. `requests`: requests
        that the coordinator answered without an error. `failed_rebalances`: joins that it refused. `now_s`, `now_ms`:
        now, by the clock of the timings and by that of the wall."""
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


MOST_SEEN = 64  # ends that are remembered of one partition; when there are more, every second one is forgotten


@dataclass(frozen=True)
class SeenOffsets:
    """A log's end, and when it was seen first and last, in milliseconds."""

    end: int
    first_ms: float
    last_ms: float


class BacklogAges:
    """Remembers when the ends of logs were where, to say since when a position is behind.

    A record at offset `p` was appended after the log's end was last seen at or below `p`, and before it was first seen
    above. In between, records are taken to have come evenly, so the answer is wrong by less than the time between these
    two looks. What was in the log before the first look counts from that look on: its age is at least the reported one.
    """

    def __init__(self) -> None:
        self._seen: dict[TopicPartition, list[SeenOffsets]] = {}

    def observe(self, ends: Mapping[TopicPartition, int], now_ms: float) -> None:
        """Take note of the ends of all partitions that matter; others are forgotten."""
        self._seen = {tp: _with(self._seen.get(tp, []), end, now_ms) for tp, end in ends.items()}

    def since_ms(self, tp: TopicPartition, position: int) -> float | None:
        """When the record at `position` was appended, as far as known; None if there is no record yet. Positions of one
        partition are asked for in ascending order: what lies before is forgotten."""
        seen = self._seen.get(tp, [])
        above = next((n for n, s in enumerate(seen) if s.end > position), None)
        if above is None:
            self._seen[tp] = seen[-1:]
            return None
        if above == 0:
            return seen[0].first_ms
        below = seen[above - 1]
        self._seen[tp] = seen[above - 1 :]
        part = (position - below.end) / (seen[above].end - below.end)
        return below.last_ms + part * (seen[above].first_ms - below.last_ms)


def _with(seen: list[SeenOffsets], end: int, now_ms: float) -> list[SeenOffsets]:
    if not seen or end < seen[-1].end:  # the topic was recreated, or the log was truncated
        return [SeenOffsets(end, now_ms, now_ms)]
    if end == seen[-1].end:
        return [*seen[:-1], SeenOffsets(end, seen[-1].first_ms, now_ms)]
    if len(seen) >= MOST_SEEN:
        seen = [seen[0], *seen[1:-1:2], seen[-1]]
    return [*seen, SeenOffsets(end, now_ms, now_ms)]
