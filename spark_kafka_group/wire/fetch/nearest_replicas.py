"""Replicas in the reader's own rack, which leaders name so that records need not cross racks (KIP-392).

1. A request with a rack goes to a partition's leader. 2. The leader sends no records, but names an in-sync replica in
that rack. 3. The next requests go to this replica, a follower, for kafka.metadata.max.age.ms. Then the leader is asked
again.

A follower may lack what its leader has: it lags, was restarted, or its copy is damaged. So it never decides that
records are gone. Whatever is unusual about its answer, the leader is asked, without a rack, for LEADER_ONLY_S.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from spark_kafka_group.values.offsets import TopicPartition

LEADER_ONLY_S = 30.0
"""As long as a leader takes by default (replica.lag.time.max.ms) to remove a follower from its in-sync replicas."""


class NearestReplicas:
    """Followers that records are read from, by partition.

    `rack`: the reader's.
    `lease_s`: how long a follower is read before the leader is asked again.
    """

    def __init__(self, rack: str, lease_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rack = rack
        self._lease_s = lease_s
        self._clock = clock
        self._followers: dict[TopicPartition, tuple[int, float]] = {}  # node, and time until which it is read
        self._leader_only: dict[TopicPartition, float] = {}  # time until which no follower is read
        self._racks: dict[int, str] = {}  # rack of the last request to each node

    def follower(self, tp: TopicPartition) -> int | None:
        """Node of the follower to read a partition from, if there is one."""
        node, until = self._followers.get(tp, (None, 0.0))
        if node is not None and self._clock() >= until:
            del self._followers[tp]
            return None
        return node

    def named(self, tp: TopicPartition, node: int) -> None:
        """The leader names a replica."""
        self._followers[tp] = node, self._clock() + self._lease_s

    def leave(self, tp: TopicPartition) -> None:
        """Read a partition from its leader for a while."""
        self._followers.pop(tp, None)
        self._leader_only[tp] = self._clock() + LEADER_ONLY_S

    def request_to(self, node: int, positions: Mapping[TopicPartition, int]) -> tuple[str, dict[TopicPartition, int]]:
        """Rack of the next request to a node, and the partitions in it.

        A request with a rack and one without take turns, if leaders have to be asked for some of these partitions only.
        The rack is empty where only leaders may answer.
        """
        now = self._clock()
        self._leader_only = {tp: until for tp, until in self._leader_only.items() if until > now}
        of_leaders = {tp: position for tp, position in positions.items() if tp in self._leader_only}
        of_any = {tp: position for tp, position in positions.items() if tp not in self._leader_only}
        rack = self._rack if of_any and (not of_leaders or not self._racks.get(node)) else ""
        self._racks[node] = rack
        return rack, of_any if rack else of_leaders
