"""The generations of a group that the events of its members cover, by partition."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from spark_kafka_group.tools.event_logs import Event
from spark_kafka_group.values.offsets import TopicPartition


class Sight:
    """A member that wrote events covers a partition in the generations in which it owned it, and in no other.

    Parameters
    ----------
    events
        Of a run, in any order.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self._owned: dict[tuple[str, int], set[TopicPartition]] = defaultdict(set)
        self._partitions: dict[tuple[str, str], set[TopicPartition]] = defaultdict(set)
        for event in events:
            if event.kind == "assigned":
                self._owned[event.group, event.generation] |= event.partitions
                for tp in event.partitions:
                    self._partitions[event.group, tp.topic].add(tp)

    def lost(self, group: str, tp: TopicPartition, after: int, before: int) -> bool:
        """Whether a member without events may have owned a partition between two generations.

        The generations of a group that was deleted and made again start from 1 again, so they prove nothing.
        """
        between = range(after + 1, before)
        return before < after or any(not (self._seen(group, tp, g) or self._empty(group, tp.topic, g)) for g in between)

    def _seen(self, group: str, tp: TopicPartition, generation: int) -> bool:
        return tp in self._owned.get((group, generation), ())

    def _empty(self, group: str, topic: str, generation: int) -> bool:
        """Whether a generation is that of a group without members: the last one left, and came back after it."""
        everything = self._partitions[group, topic]
        around = [self._owned.get((group, g), set()) for g in (generation - 1, generation + 1)]
        return (group, generation) not in self._owned and all(everything <= owned for owned in around)
