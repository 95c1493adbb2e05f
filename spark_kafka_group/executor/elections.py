"""Partitions whose leaders are of other epochs than records were planned under, and send none (KIP-320).

A leader of a later epoch says where the planned one ends in its log. One of an earlier epoch is elected first, or its
broker does not know yet that another was. If neither changes, the topic was deleted and made again, and the log is
another one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from spark_kafka_group.offsets import TopicPartition
from spark_kafka_group.wire import Brokers
from spark_kafka_group.wire.reactions import Reaction


class Elected(NamedTuple):
    """What a partition's leader says.

    Attributes
    ----------
    planned
        The epoch that records were planned under.
    current
        The leader's own, or -1.
    end
        Where the planned epoch ends in its log; None where it does not know.
    """

    tp: TopicPartition
    planned: int
    current: int
    end: int | None

    @property
    def replaced(self) -> bool:
        """Whether the log is another one than that of the planned epoch, which the leader has never heard of."""
        return 0 <= self.current < self.planned and self.end is None


class Elections:
    """Leaders that are to be asked about their logs.

    Parameters
    ----------
    epochs
        That records were planned under.
    doubted_for_s
        How long leaders of earlier epochs are not believed.
    """

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
        """A leader has answered a request for records of a planned epoch, if with an error, with one to be met so."""
        if reaction is not Reaction.LEADS_EARLIER:
            if self._ahead_since:
                self._ahead_since.pop(tp, None)
            if reaction is Reaction.LEADS_LATER:
                self._ask.add(tp)
        elif self._clock() - self._ahead_since.setdefault(tp, self._clock()) >= self._doubted_for_s:
            self._ask.add(tp)

    def unreached(self, tp: TopicPartition) -> None:
        """A leader has not answered: what it said before is no longer for how long it has said so."""
        self._ahead_since.pop(tp, None)

    def told(self) -> list[Elected]:
        """What leaders say that had to be asked; all at a time, as a broker that goes leaves many to others.

        Raises
        ------
        BrokerError
        """
        if not self._ask:
            return []
        asked = {tp: self._epochs[tp] for tp in sorted(self._ask)}
        self._ask.clear()
        found = self._brokers.epoch_ends(asked)
        return [Elected(tp, asked[tp], current, end) for tp, (end, current) in found.items()]
