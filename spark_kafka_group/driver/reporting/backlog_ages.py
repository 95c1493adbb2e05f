"""How old a backlog is, from the ends of logs as they were looked up before: nothing is read for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_kafka_group.values.offsets import TopicPartition

MOST_SEEN = 64
"""Ends that are remembered of one partition; when there are more, every second one is forgotten."""


@dataclass(frozen=True)
class Seen:
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
        self._seen: dict[TopicPartition, list[Seen]] = {}

    def observe(self, ends: Mapping[TopicPartition, int], now_ms: float) -> None:
        """Take note of the ends of all partitions that matter; others are forgotten."""
        self._seen = {tp: _with(self._seen.get(tp, []), end, now_ms) for tp, end in ends.items()}

    def since_ms(self, tp: TopicPartition, position: int) -> float | None:
        """When the record at `position` was appended, as far as known; None if there is no record yet.

        Positions of one partition are asked for in ascending order: what lies before is forgotten.
        """
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


def _with(seen: list[Seen], end: int, now_ms: float) -> list[Seen]:
    if not seen or end < seen[-1].end:  # the topic was recreated, or the log was truncated
        return [Seen(end, now_ms, now_ms)]
    if end == seen[-1].end:
        return [*seen[:-1], Seen(end, seen[-1].first_ms, now_ms)]
    if len(seen) >= MOST_SEEN:
        seen = [seen[0], *seen[1:-1:2], seen[-1]]
    return [*seen, Seen(end, now_ms, now_ms)]
