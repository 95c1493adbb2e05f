"""Leaders that records are fetched from, and what they know about their logs.

Replicas in the reader's own rack, which leaders name so that records need not cross racks (KIP-392).

1. A request with a rack goes to a partition's leader. 2. The leader sends no records, but names an in-sync replica in
that rack. 3. The next requests go to this replica, a follower, for kafka.metadata.max.age.ms. Then the leader is asked
again.

A follower may lack what its leader has: it lags, was restarted, or its copy is damaged. So it never decides that
records are gone. Whatever is unusual about its answer, the leader is asked, without a rack, for LEADER_ONLY_S.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import kafka.errors as kafka_errors
from kafka.protocol.consumer import FetchRequest
from kafka.structs import TopicPartition as KafkaTopicPartition

from spark_kafka_group.errors import BrokerTimeoutError
from spark_kafka_group.options import ClientOptions
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.client.connect import translated
from spark_kafka_group.wire.fetch.fetch_connection import FetchConnection
from spark_kafka_group.wire.fetch.response import VERSIONS
from spark_kafka_group.wire.leaders import Leaders
from spark_kafka_group.wire.reactions import RETRIED, Request, reaction_to

log = logging.getLogger(__name__)


LEADER_ONLY_S = 30.0
"""As long as a leader takes by default (replica.lag.time.max.ms) to remove a follower from its in-sync replicas."""


class NearestReplicas:
    """Followers that records are read from, by partition. `rack`: the reader's. `lease_s`: how long a follower is read
    before the leader is asked again."""

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
        """Rack of the next request to a node, empty where only leaders may answer, and its partitions. Requests with a
        rack and without take turns, if leaders have to be asked for some partitions only."""
        now = self._clock()
        self._leader_only = {tp: until for tp, until in self._leader_only.items() if until > now}
        of_leaders = {tp: position for tp, position in positions.items() if tp in self._leader_only}
        of_any = {tp: position for tp, position in positions.items() if tp not in self._leader_only}
        rack = self._rack if of_any and (not of_leaders or not self._racks.get(node)) else ""
        self._racks[node] = rack
        return rack, of_any if rack else of_leaders


class Brokers(Leaders[FetchConnection]):
    """Who leads a partition, and connections to leaders that records are fetched over."""

    def __init__(self, options: ClientOptions, role: str = "executor") -> None:
        super().__init__(options, role)
        self._patience_s: dict[int, float] = {}  # of nodes that were silent, for their next connections

    @cached_property
    def nearest(self) -> NearestReplicas | None:
        """Replicas in this process's rack; None without a rack."""
        fetching = self.options.fetching
        rack = fetching.rack(os.environ)
        if fetching.client_rack and not rack:
            log.warning(
                "kafka.client.rack is %s, which has no value here: records come from leaders", fetching.client_rack
            )
        return NearestReplicas(rack, self.options.connection.metadata_max_age_ms / 1000) if rack else None

    def log_bounds(self, tp: TopicPartition) -> tuple[int, int] | None:
        """First offset of a log, and that of its next record; None for a partition that is gone. Raises BrokerError."""
        from spark_kafka_group.wire.log_client import LogClient  # the driver's, and seldom needed

        client = LogClient(self.options)
        try:
            first, last = client.beginning_offsets([tp]), client.log_ends([tp])
            return (first[tp], last[tp]) if tp in first and tp in last else None
        finally:
            client.close()

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int | None, int]]:
        """Where records of leader epochs end in logs, or None where a leader does not know; and the leader's own epoch,
        or -1. Without partitions of which the leader is not known. Raises BrokerError."""
        from spark_kafka_group.wire.leader_epochs import NO_EPOCH, EpochAsked, ends_of_epochs  # seldom needed

        with translated(f"looking up ends of leader epochs of {', '.join(map(str, sorted(epochs)))}"):
            client = self._bootstrapped()
            self._run(lambda: client.cluster.refresh_metadata(client._manager.any_node()))
            asked = {}
            for tp, epoch in epochs.items():
                current = client.cluster.leader_epoch_for_partition(KafkaTopicPartition(*tp))
                asked[tp] = EpochAsked(epoch, NO_EPOCH if current is None else current)
            try:
                ends = self._run(lambda: ends_of_epochs(client._manager, asked))
            except kafka_errors.KafkaError as error:
                if reaction_to(error, Request.EPOCH_END) not in RETRIED:
                    raise
                return {}
        return {tp: (end, asked[tp].current) for tp, end in ends.items()}

    def give_up(self, node_id: int, error: Exception) -> None:
        """As of :class:`Leaders`; a silent node may be slow and no more, so its next connection gets twice the time."""
        connection = self._connections.get(node_id)
        if isinstance(error, TimeoutError | BrokerTimeoutError) and connection is not None:
            self._patience_s[node_id] = min(
                2 * connection.patience_s, self.options.connection.request_timeout_ms / 1000
            )
        super().give_up(node_id, error)

    def _over(self, sock: socket.socket, node_id: int, conn: Any, lifetime_s: float | None) -> FetchConnection:
        version = conn.broker_version_data.api_version(FetchRequest, max_version=VERSIONS[-1])
        return FetchConnection(
            sock, self.options, self._role, version, lifetime_s, self._patience_s.pop(node_id, 0.0), conn.made_to
        )
