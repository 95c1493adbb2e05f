"""What a stream cannot read now, and waits for: partitions without a leader, topics that do not exist or are empty."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping

from spark_kafka_group.options.reading import Subscription
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.values.retry_topics import main_topic

log = logging.getLogger(__name__)


class LeaderlessPartitions:
    """Partitions that the last look at the ends of logs left out as they had no leader. `now`: since when each of them
    lacks one, by time.monotonic()."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self.now: dict[TopicPartition, float] = {}

    def note(self, lacking: Collection[TopicPartition], led: Collection[TopicPartition], at_s: float) -> None:
        """Take note of the partitions that lack a leader at this moment; log new ones, and those that have one again.
        `led`: the other partitions that exist, and that this query reads."""
        new = sorted(set(lacking) - self.now.keys())
        if new:
            log.warning(
                "group %s: no broker leads %s: the query goes on with its other partitions meanwhile",
                self._group_id, ", ".join(map(str, new)),
            )  # fmt: skip
        for tp in sorted(self.now.keys() & set(led)):
            log.info("group %s: %s has a leader again, after %.0f s", self._group_id, tp, at_s - self.now[tp])
        self.now = {tp: self.now.get(tp, at_s) for tp in lacking}

    def select_from(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The part of `ends` that is theirs."""
        return {tp: ends[tp] for tp in self.now if tp in ends}

    def left_out_of(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """`offsets` without theirs."""
        return {tp: offset for tp, offset in offsets.items() if tp not in self.now}


LOOK_AGAIN_S = 60.0
AGAIN_S, AGAIN_AT_MOST_S = 600.0, 86_400.0
"""A topic is named again after the first of these, then after twice as long each time, up to the second."""


class AwaitedTopics:
    """Logs again, ever more seldom, topics that a query waits for: one may be a typo. Retry topics may be missing."""

    def __init__(self, group_id: str, subscription: Subscription, clock: Callable[[], float] = time.monotonic) -> None:
        self._group_id = group_id
        self._subscription = subscription
        self._clock = clock
        self._looks_at = float("-inf")
        self._pauses: dict[str, tuple[float, float]] = {}  # by sentence: when it is logged next, and the pause then

    def look(self, known: Callable[[], Collection[TopicPartition]], ends: Mapping[TopicPartition, int]) -> None:
        """Log the topics that have been waited for long enough. `known`: gives the partitions that exist. `ends`: ends
        of those logs that this query reads."""
        now = self._clock()
        if now < self._looks_at:
            return
        self._looks_at = now + LOOK_AGAIN_S
        waited_for = _waited_for(self._subscription, known(), ends)
        self._pauses = {text: self._pauses.get(text, (now + AGAIN_S, AGAIN_S)) for text in waited_for}
        for text, (due, pause) in self._pauses.items():
            if now >= due:
                log.warning("group %s: %s", self._group_id, text)
                longer = min(2 * pause, AGAIN_AT_MOST_S)
                self._pauses[text] = now + longer, longer


def _waited_for(
    subscription: Subscription, known: Collection[TopicPartition], ends: Mapping[TopicPartition, int]
) -> list[str]:
    """A sentence on each topic that does not exist, and on each that is read here as a whole and has no record."""
    if subscription.pattern is not None:
        return [] if known else [f"still no topic that subscribePattern ({subscription.pattern}) finds"]
    named = {topic for topic in subscription.named() if main_topic(topic, subscription.delays_ms) == topic}
    there = {tp.topic for tp in known}
    written = {tp.topic for tp in known if ends.get(tp) != 0}
    return [
        *(f"still no topic {topic}: create it, or correct its name" for topic in sorted(named - there)),
        *(f"still no record in topic {topic}: is its name right?" for topic in sorted(named & there - written)),
    ]
