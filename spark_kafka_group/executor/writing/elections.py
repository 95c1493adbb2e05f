"""Partitions whose leaders have another epoch than the planned one, and so send no records (KIP-320).

A leader of a later epoch says where the planned one ends in its log. One of an earlier epoch is elected first, or its
broker does not know yet that another was. If neither changes, the topic was deleted and made again, and the log is
another one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire import Brokers
from spark_kafka_group.wire.reactions import Reaction


class Elected(NamedTuple):
    """A leader's answer about the planned epoch."""

    tp: TopicPartition
    planned: int  # the epoch under which the records were planned
    current: int  # the leader's own, or -1
    end: int | None  # where the planned epoch ends in its log; None where it does not know

    @property
    def replaced(self) -> bool:
        """Whether the topic was recreated: the leader does not know the planned epoch."""
        return 0 <= self.current < self.planned and self.end is None

    @property
    def later(self) -> bool:
        """Whether its log may be read on: it is of a later epoch, or knows no epochs."""
        return self.current < 0 or self.current > self.planned


class Elections:
    """Leaders that are to be asked about their logs. `epochs`: under which the records were planned. `doubted_for_s`:
    how long a leader of an earlier epoch may be one that a broker does not know to be replaced."""

    def __init__(
        self,
        brokers: Brokers,
        epochs: Mapping[TopicPartition, int],
        doubted_for_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._brokers = brokers
        self._epochs = epochs
        self._doubted_for_s = doubted_for_s
        self._clock = clock
        self._ahead_since: dict[TopicPartition, float] = {}
        self._ask: set[TopicPartition] = set()

    def answered(self, tp: TopicPartition, reaction: Reaction | None) -> None:
        """A leader has answered a request for records of a planned epoch; `reaction` is that to its error, if any."""
        if reaction is not Reaction.LEADS_EARLIER:
            if self._ahead_since:
                self._ahead_since.pop(tp, None)
            if reaction is Reaction.LEADS_LATER:
                self._ask.add(tp)
        elif self._clock() - self._ahead_since.setdefault(tp, self._clock()) >= self._doubted_for_s:
            self._ask.add(tp)

    def unreached(self, tp: TopicPartition) -> None:
        """Forget a leader's earlier answers, as it has not answered now."""
        self._ahead_since.pop(tp, None)

    def ask_leaders(self) -> list[Elected]:
        """Ask the leaders with other epochs, all in one round: a broker that leaves has many successors. Raises
        BrokerError."""
        if not self._ask:
            return []
        asked = {tp: self._epochs[tp] for tp in sorted(self._ask)}
        self._ask.clear()
        ends = self._brokers.epoch_ends(asked)
        return [Elected(tp, asked[tp], current, end) for tp, (end, current) in ends.items()]
