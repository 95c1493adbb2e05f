"""Partitions without a leader: a stream goes on with the others, as Kafka's own consumer does."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from spark_kafka_group.values.offsets import TopicPartition

log = logging.getLogger(__name__)


class LeaderlessPartitions:
    """Partitions that the last look at the ends of logs left out as they had no leader.

    Attributes
    ----------
    now
        Since when each of them lacks one, by time.monotonic().
    """

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self.now: dict[TopicPartition, float] = {}

    def note(self, lacking: Collection[TopicPartition], led: Collection[TopicPartition], at_s: float) -> None:
        """Take note of the partitions that lack a leader at this moment; log new ones, and those that have one again.

        Parameters
        ----------
        led
            The other partitions that exist, and that this query reads.
        """
        new = sorted(set(lacking) - self.now.keys())
        if new:
            log.warning(
                "group %s: no broker leads %s: the query goes on with its other partitions meanwhile",
                self._group_id, ", ".join(map(str, new)),
            )  # fmt: skip
        for tp in sorted(self.now.keys() & set(led)):
            log.info("group %s: %s has a leader again, after %.0f s", self._group_id, tp, at_s - self.now[tp])
        self.now = {tp: self.now.get(tp, at_s) for tp in lacking}

    def of(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The part of `ends` that is theirs."""
        return {tp: ends[tp] for tp in self.now if tp in ends}

    def left_out_of(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """`offsets` without theirs."""
        return {tp: offset for tp, offset in offsets.items() if tp not in self.now}
