"""Who leads a partition, and connections to leaders that records are fetched over."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import time
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

import kafka.errors as kafka_errors
from kafka.net.compat import KafkaNetClient
from kafka.protocol.consumer import FetchRequest
from kafka.structs import TopicPartition as KafkaTopicPartition

from spark_kafka_group.errors import BrokerTimeoutError
from spark_kafka_group.offsets import TopicPartition
from spark_kafka_group.options import ClientOptions
from spark_kafka_group.wire.client.address import address
from spark_kafka_group.wire.client.connect import connection_configs, run_within, translated
from spark_kafka_group.wire.client.manager import net_client
from spark_kafka_group.wire.fetch.fetch_connection import USED_OF_LIFETIME, FetchConnection
from spark_kafka_group.wire.fetch.nearest_replicas import NearestReplicas
from spark_kafka_group.wire.fetch.response import VERSIONS
from spark_kafka_group.wire.reactions import RETRIED, Request, reaction_to

log = logging.getLogger(__name__)

CONNECTED_WITHIN_S = 5.0
"""How long a call waits for a connection, before the caller may ask whether another broker leads by now. The attempt
goes on, for kafka.socket.connection.setup.timeout.ms, and the next call waits for it again."""
LOOK_EVERY_S = 0.01


class Brokers:
    """Who leads a partition, and connections to leaders that records are fetched over.

    Parameters
    ----------
    role
        Ends the client id that brokers see.
    """

    def __init__(self, options: ClientOptions, role: str = "executor") -> None:
        self._options = options
        self._role = role
        self._speaks = role != "driver"
        self.retry_backoff_s = options.connection.retry_backoff_ms / 1000
        self._client: KafkaNetClient | None = None
        self._connections: dict[int, FetchConnection] = {}
        self._patience_s: dict[int, float] = {}  # of nodes that were silent, for their next connections

    @cached_property
    def nearest(self) -> NearestReplicas | None:
        """Replicas in this process's rack; None without a rack."""
        fetching = self._options.fetching
        rack = fetching.rack(os.environ)
        if fetching.client_rack and not rack:
            log.warning(
                "kafka.client.rack is %s, which has no value here: records come from leaders", fetching.client_rack
            )
        return NearestReplicas(rack, self._options.connection.metadata_max_age_ms / 1000) if rack else None

    def speak(self, speaks: bool) -> None:
        """Turn the warning that no broker can be reached on or off."""
        self._speaks = speaks
        if self._client is not None:
            self._client._manager.speak(speaks)

    def known(self) -> list[str]:
        """Addresses of brokers: those in the last metadata, else kafka.bootstrap.servers. No I/O."""
        brokers = [] if self._client is None else self._client.cluster.brokers()
        return sorted(
            address(broker.host, broker.port) for broker in brokers
        ) or self._options.connection.bootstrap_servers.split(",")

    @property
    def last_failure(self) -> str | None:
        """Why the last connection could not be made, or ended, with its address."""
        return None if self._client is None else self._client._manager.last_failure

    def leaders(
        self,
        tps: Collection[TopicPartition],
        refresh: bool,
        topic_ids: Mapping[str, str] = MappingProxyType({}),
    ) -> dict[TopicPartition, int]:
        """Node id of the leader of each partition that has one.

        Parameters
        ----------
        refresh
            Ask the cluster even where an answer is known: a leader may have moved.
        topic_ids
            Without partitions of topics that have other ids than these.

        Raises
        ------
        BrokerError
        """
        topics = {tp.topic for tp in tps}
        with translated(f"looking up leaders of {', '.join(sorted(topics))}"):
            manager = self._bootstrapped()._manager
            cluster = manager.cluster
            known = self._known_leaders(cluster, tps, topic_ids)
            if refresh or len(known) < len(tps):
                # The last answer does not do. The broker that gave it may be cut off from the others, and not know it;
                # kafka-python would ask it again and again, as it has a connection to it.
                ask_any = refresh or topics <= set(cluster._topics)
                cluster.set_topics(set(cluster._topics) | topics)
                self._run(lambda: cluster.refresh_metadata(manager.any_node() if ask_any else None))
                denied = topics & set(cluster.unauthorized_topics)
                if denied:
                    raise kafka_errors.TopicAuthorizationFailedError(denied)
                known = self._known_leaders(cluster, tps, topic_ids)
        return known

    def _known_leaders(
        self, cluster: Any, tps: Collection[TopicPartition], topic_ids: Mapping[str, str]
    ) -> dict[TopicPartition, int]:
        others = self.made_again(topic_ids)
        leaders = ((tp, cluster.leader_for_partition(KafkaTopicPartition(*tp))) for tp in tps if tp.topic not in others)
        return {tp: node for tp, node in leaders if node is not None and node >= 0}

    def missing(
        self, tps: Collection[TopicPartition], topic_ids: Mapping[str, str] = MappingProxyType({})
    ) -> set[TopicPartition]:
        """Those of `tps` that the cluster, when last asked, did not have in topics of these ids; no I/O."""
        partitions_of, others = self._bootstrapped().cluster.partitions_for_topic, self.made_again(topic_ids)
        return {tp for tp in tps if tp.topic in others or tp.partition not in (partitions_of(tp.topic) or ())}

    def made_again(self, topic_ids: Mapping[str, str]) -> set[str]:
        """Topics that the cluster, when last asked, had under other ids than these; no I/O."""
        id_of = self._bootstrapped().cluster.topic_id
        now = {topic: id_of(topic) for topic in topic_ids}
        return {topic for topic, topic_id in now.items() if topic_id is not None and str(topic_id) != topic_ids[topic]}

    def leader_epoch(self, tp: TopicPartition) -> int | None:
        """Of the leader that the cluster named when last asked, as far as it knows epochs; no I/O."""
        epoch: int | None = self._bootstrapped().cluster.leader_epoch_for_partition(KafkaTopicPartition(*tp))
        return epoch

    def log_bounds(self, tp: TopicPartition) -> tuple[int, int] | None:
        """First offset of a partition's log, and the one its next record will get; None if it does not exist any more.

        Raises
        ------
        BrokerError
        """
        from spark_kafka_group.wire.log_client import LogClient  # the driver's, and seldom needed

        client = LogClient(self._options)
        try:
            first, last = client.beginning_offsets([tp]), client.log_ends([tp])
            return (first[tp], last[tp]) if tp in first and tp in last else None
        finally:
            client.close()

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int | None, int]]:
        """Where the records of leader epochs end in partitions' logs, or None where a leader does not know; and the
        leader's own epoch, -1 if that is not known. Without a partition of which it is not known who leads.

        Raises
        ------
        BrokerError
        """
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

    def connection(self, node_id: int) -> FetchConnection:
        """The cached connection to a node, or a new one.

        Raises
        ------
        BrokerError
        """
        connection = self._connections.get(node_id)
        if connection is not None and (connection.stale or (connection.idle and self._moved(node_id, connection))):
            self.drop(node_id)
            connection = None
        if connection is None:
            with translated(f"connecting to node {node_id}"):
                connection = self._connections[node_id] = self._connect(node_id)
                if self._moved(node_id, connection):  # it was that of kafka-python's lookups
                    self.drop(node_id)
                    connection = self._connections[node_id] = self._connect(node_id)
        return connection

    def _moved(self, node_id: int, connection: FetchConnection) -> bool:
        """Whether a connection leads to an address that is not the node's any more.

        1. Brokers come back at each other's addresses. 2. A broker that does not know it yet names an old address. 3.
        The connection leads to another broker, which answers that it does not lead, as long as it is asked.
        """
        node = None if self._client is None else self._client.cluster.broker_metadata(node_id)
        return node is not None and connection.made_to != (node.host, node.port)

    def give_up(self, node_id: int, error: Exception) -> None:
        """Close the connection to a node after an error. If the node was silent, others are asked who leads.

        It may be slow and no more, so over its next connection it gets twice the time.
        """
        if isinstance(error, TimeoutError | BrokerTimeoutError):
            if self._client is not None:
                self._client._manager.note_silent(node_id)
            connection = self._connections.get(node_id)
            if connection is not None:
                self._patience_s[node_id] = min(
                    2 * connection.patience_s, self._options.connection.request_timeout_ms / 1000
                )
        self.drop(node_id)

    def drop(self, node_id: int) -> None:
        """Close the connection to a node; the next use makes a new one."""
        connection = self._connections.pop(node_id, None)
        if connection is not None:
            connection.close()

    def drop_busy(self) -> None:
        """Close connections that still owe a response, as a reader that stopped half-way leaves them."""
        for node_id in [node_id for node_id, connection in self._connections.items() if not connection.idle]:
            self.drop(node_id)

    def close(self) -> None:
        """Close everything."""
        for node_id in list(self._connections):
            self.drop(node_id)
        if self._client is not None:
            self._client.close()
            self._client = None

    def _bootstrapped(self) -> KafkaNetClient:
        if self._client is None:
            # The driver has reached the cluster before, and says for itself when it cannot any more.
            client = net_client(
                reached_before=True, speaks=self._speaks, **connection_configs(self._options, self._role)
            )
            try:
                client._manager.bootstrap(self._options.connection.request_timeout_ms)
            except BaseException:
                client.close()
                raise
            self._client = client
        return self._client

    def _run(self, call: Callable[[], Any], timeout_ms: float | None = None) -> Any:
        limit_ms = self._options.connection.request_timeout_ms
        return run_within(
            self._bootstrapped()._manager, limit_ms if timeout_ms is None else min(timeout_ms, limit_ms), call
        )

    def _connect(self, node_id: int) -> FetchConnection:
        client = self._bootstrapped()
        manager, net = client._manager, client._net

        async def connected() -> Any:
            # The connection may be that of lookups: a response may be due, or it is authenticated again.
            conn = await manager.get_connection(node_id)
            while not conn.closed and (conn.in_flight_requests or conn._reauth.is_reauthenticating):
                await net.sleep(LOOK_EVERY_S)
            if conn.transport is not None and _ends_soon(conn):
                conn.transport.abort()
            return conn if conn.connected else await manager.get_connection(node_id)

        try:
            conn = self._run(connected, CONNECTED_WITHIN_S * 1000)
        except kafka_errors.KafkaTimeoutError as error:
            raise BrokerTimeoutError(f"connecting to node {node_id}: it does not answer") from error
        version = conn.broker_version_data.api_version(FetchRequest, max_version=VERSIONS[-1])
        # Take the socket over: kafka-python's loop forgets it, as its own close does, but leaves it open.
        transport = conn.transport
        if transport is None:
            raise kafka_errors.KafkaConnectionError(f"the connection to node {node_id} has just ended")
        sock = transport._sock
        transport.pause_reading()
        with contextlib.suppress(KeyError, ValueError):
            net.unregister_event(sock, selectors.EVENT_READ | selectors.EVENT_WRITE)
        for task in (transport._read_task, transport._write_task):
            if task is not None:
                net.cancel(task)
        transport._sock = transport._read_task = transport._write_task = None
        lifetime_s = _lifetime_s(conn)
        conn._reauth.cancel()
        manager._conns.pop(node_id, None)
        return FetchConnection(
            sock, self._options, self._role, version, lifetime_s, self._patience_s.pop(node_id, 0.0), conn.made_to
        )


def _ends_soon(conn: Any) -> bool:
    """Whether the broker is about to want to see credentials again."""
    left_s = _lifetime_s(conn)
    return left_s is not None and left_s <= conn._reauth.session_lifetime_ms / 1000 * (1 - USED_OF_LIFETIME)


def _lifetime_s(conn: Any) -> float | None:
    """How long the broker still takes requests before it wants to see credentials again (KIP-368); None for ever."""
    whole_s = conn._reauth.session_lifetime_ms / 1000
    return conn._reauth.authenticated_at + whole_s - time.monotonic() if whole_s else None
