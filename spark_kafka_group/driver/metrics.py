"""Counts and times of one query, shown in its progress."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Metrics:
    """What the query's progress shows besides offsets; counted since its process started.

    Attributes
    ----------
    rebalances
        Generations that the group, and not this query, asked for.
    lost
        How often membership was lost.
    commits
        Commits that succeeded.
    commit_latency_ms
        Duration of the last one.
    offset_conflicts
        Partitions for which checkpoint and group disagreed.
    hook_errors
        Exceptions of the user's hooks.
    data_losses
        How often data were found to be gone, with failOnDataLoss=false.
    offsets_lost
        How many offsets that were, as far as it can be known.
    """

    rebalances: int = 0
    lost: int = 0
    commits: int = 0
    commit_latency_ms: float = 0.0
    offset_conflicts: int = 0
    hook_errors: int = 0
    data_losses: int = 0
    offsets_lost: int = 0

    def to_json(self) -> dict[str, float]:
        """By the names that the progress shows."""
        return {
            "rebalances": self.rebalances,
            "membershipsLost": self.lost,
            "commits": self.commits,
            "commitLatencyMs": round(self.commit_latency_ms, 3),
            "offsetConflicts": self.offset_conflicts,
            "hookErrors": self.hook_errors,
            "dataLosses": self.data_losses,
            "offsetsLost": self.offsets_lost,
        }
