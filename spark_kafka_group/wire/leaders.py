"""Who leads a partition, and connections to brokers whose sockets are this package's.

kafka-python looks leaders up, connects and authenticates. Then its connection's socket is taken over. A process keeps
connections for the next task that needs them: Spark reuses its Python workers.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import selectors
import socket
import time
from collections.abc import Callable, Collection, Hashable, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import kafka.errors as kafka_errors
from kafka.net.compat import KafkaNetClient
from kafka.protocol.metadata import MetadataRequest
from kafka.structs import TopicPartition as KafkaTopicPartition

from spark_kafka_group.errors import LASTING, BrokerTimeoutError
from spark_kafka_group.options import ClientOptions
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.broker_connection import USED_OF_LIFETIME, BrokerConnection
from spark_kafka_group.wire.client.connect import (
    REQUEST_TIMEOUT,
    connection_configs,
    reached_client,
    run_within,
    translated,
)
from spark_kafka_group.wire.client.reachability import address

CONNECTED_WITHIN_S = 5.0
"""How long a call waits for a connection, before the caller may ask whether another broker leads by now. The attempt
goes on, for kafka.socket.connection.setup.timeout.ms, and the next call waits for it again."""
LOOK_EVERY_S = 0.01

C = TypeVar("C", bound=BrokerConnection)


class Leaders(Generic[C]):
    """Who leads a partition, and a connection to each broker that is asked for. `role`: ends the client id that brokers
    see."""

    def __init__(self, options: ClientOptions, role: str) -> None:
        self.options = options
        self._role = role
        self._speaks = role != "driver"
        self.retry_backoff_s = options.connection.retry_backoff_ms / 1000
        self._client: KafkaNetClient | None = None
        self._connections: dict[int, C] = {}

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
        ) or self.options.connection.bootstrap_servers.split(",")

    @property
    def last_failure(self) -> str | None:
        """Why the last connection could not be made, or ended, with its address."""
        return None if self._client is None else self._client._manager.last_failure

    def reach(self, limit: str = REQUEST_TIMEOUT) -> None:
        """Reach a broker, if none was reached yet. `limit`: what sets the limit, for the error. Raises BrokerError when
        none answers within kafka.request.timeout.ms."""
        with translated(f"connecting to {self.options.connection.bootstrap_servers}", limit=limit):
            self._bootstrapped()

    def leaders(
        self,
        tps: Collection[TopicPartition],
        refresh: bool,
        topic_ids: Mapping[str, str] = MappingProxyType({}),
    ) -> dict[TopicPartition, int]:
        """Node id of the leader of each partition that has one. `refresh`: ask the cluster even where an answer is
        known: a leader may have moved. `topic_ids`: without partitions of topics that have other ids than these. Raises
        BrokerError."""
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
                # Those of earlier calls that are gone, or denied since, are asked for no more.
                cluster._topics = topics | (set(cluster._topics) & cluster.topics(exclude_internal_topics=False))
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
        known = {topic: partitions_of(topic) or () for topic in {tp.topic for tp in tps} - others}
        return {tp for tp in tps if tp.partition not in known.get(tp.topic, ())}

    def made_again(self, topic_ids: Mapping[str, str]) -> set[str]:
        """Topics that the cluster, when last asked, had under other ids than these; no I/O."""
        id_of = self._bootstrapped().cluster.topic_id
        now = {topic: id_of(topic) for topic in topic_ids}
        return {topic for topic, topic_id in now.items() if topic_id is not None and str(topic_id) != topic_ids[topic]}

    def leader_epoch(self, tp: TopicPartition) -> int | None:
        """Of the leader that the cluster named when last asked, as far as it knows epochs; no I/O."""
        epoch: int | None = self._bootstrapped().cluster.leader_epoch_for_partition(KafkaTopicPartition(*tp))
        return epoch

    def metadata_to_write(self, topics: Collection[str], within_ms: float) -> list[Any]:
        """A broker's answer about topics, with allowed operations; raises kafka-python's errors. Brokers may make these
        topics, not others that were looked up before, which it has, too. Their leaders are known then."""
        began_s = time.monotonic()
        manager = self._bootstrapped(within_ms)._manager
        cluster = manager.cluster
        before = set(cluster._topics) - set(topics)
        requests = [_to_write(topics, makes=True), *([_to_write(before, makes=False)] if before else [])]

        async def asked() -> list[Any]:
            node = manager.any_node()
            futures = [manager.send(request, node) for request in requests]
            return [await future for future in futures]

        responses = self._run(asked, max(0.0, within_ms - 1000 * (time.monotonic() - began_s)))
        responses[0].topics = [topic for response in responses for topic in response.topics]
        cluster._topics = before | set(topics)
        cluster.update_metadata(responses[0])
        return list(responses[0].topics)

    def connection(self, node_id: int) -> C:
        """The cached connection to a node, or a new one. Raises BrokerError."""
        connection = self._usable(node_id)
        if connection is None:
            with translated(f"connecting to node {node_id}"):
                connection = self._connections[node_id] = self._connect(node_id)
                if self._moved(node_id, connection):  # it was that of kafka-python's lookups
                    self.drop(node_id)
                    connection = self._connections[node_id] = self._connect(node_id)
        return connection

    def _usable(self, node_id: int) -> C | None:
        """The cached connection to a node, if it may be used still."""
        connection = self._connections.get(node_id)
        if connection is not None and (connection.stale or (connection.idle and self._moved(node_id, connection))):
            self.drop(node_id)
            return None
        return connection

    def _moved(self, node_id: int, connection: C) -> bool:
        """Whether a connection leads to an address that is not the node's any more, as :meth:`Manager._moved`."""
        node = None if self._client is None else self._client.cluster.broker_metadata(node_id)
        return node is not None and connection.made_to != (node.host, node.port)

    def give_up(self, node_id: int, error: Exception) -> None:
        """Close the connection to a node after an error. If the node was silent, others are asked who leads."""
        if isinstance(error, TimeoutError | BrokerTimeoutError) and self._client is not None:
            self._client._manager.note_silent(node_id)
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

    def drop_all(self) -> None:
        """Close the connections to all nodes; the nodes and their leaders stay known."""
        for node_id in list(self._connections):
            self.drop(node_id)

    def log_in_again_after(self, error: Exception) -> None:
        """Have the next call make a new client, if this one was refused: it would not log in again."""
        if isinstance(error, LASTING):
            self.close()

    def close(self) -> None:
        self.drop_all()
        if self._client is not None:
            self._client.close()
            self._client = None

    def _bootstrapped(self, within_ms: float | None = None) -> KafkaNetClient:
        """A client that has reached a broker, within kafka.request.timeout.ms, or less than that."""
        if self._client is None:
            limit_ms = self.options.connection.request_timeout_ms
            # The driver has reached the cluster before, and says for itself when it cannot any more.
            self._client = reached_client(
                connection_configs(self.options, self._role),
                limit_ms if within_ms is None else min(within_ms, limit_ms),
                reached_before=True,
                speaks=self._speaks,
            )
        return self._client

    def _run(self, call: Callable[[], Any], timeout_ms: float | None = None) -> Any:
        limit_ms = self.options.connection.request_timeout_ms
        return run_within(
            self._bootstrapped()._manager, limit_ms if timeout_ms is None else min(timeout_ms, limit_ms), call
        )

    def _connect(self, node_id: int) -> C:
        try:
            conn = self._run(lambda: self._connected(node_id), CONNECTED_WITHIN_S * 1000)
        except kafka_errors.KafkaTimeoutError as error:
            raise BrokerTimeoutError(f"connecting to node {node_id}: it does not answer") from error
        return self._taken_over(node_id, conn)

    async def _connected(self, node_id: int) -> Any:
        """kafka-python's connection to a node, which the broker is not about to close."""
        conn = await self._quiet(node_id)
        if conn.transport is not None and _ends_soon(conn):
            conn.transport.abort()
        return conn if conn.connected else await self._quiet(node_id)

    async def _quiet(self, node_id: int) -> Any:
        """kafka-python's connection to a node, closed, or with no response due: lookups and logins may use it, too."""
        client = self._bootstrapped()
        conn = await client._manager.get_connection(node_id)
        while not conn.closed and (conn.in_flight_requests or conn._reauth.is_reauthenticating):
            await client._net.sleep(LOOK_EVERY_S)
        return conn

    def _taken_over(self, node_id: int, conn: Any) -> C:
        """A connection over the socket of kafka-python's, whose loop forgets it, as its own close does, but leaves it
        open."""
        client = self._bootstrapped()
        manager, net = client._manager, client._net
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
        try:
            return self._over(sock, node_id, conn, lifetime_s)
        except BaseException:
            sock.close()
            raise

    def _over(self, sock: socket.socket, node_id: int, conn: Any, lifetime_s: float | None) -> C:
        """A connection over a socket that was kafka-python's `conn`'s."""
        raise NotImplementedError


def _to_write(topics: Collection[str], makes: bool) -> Any:
    """A question about topics, and what the user may do with them; with `makes` brokers may make them."""
    return MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in topics],
        allow_auto_topic_creation=makes,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=True,
    )


def _ends_soon(conn: Any) -> bool:
    """Whether the broker is about to want to see credentials again."""
    left_s = _lifetime_s(conn)
    return left_s is not None and left_s <= conn._reauth.session_lifetime_ms / 1000 * (1 - USED_OF_LIFETIME)


def _lifetime_s(conn: Any) -> float | None:
    """How long the broker still takes requests before it wants to see credentials again (KIP-368); None for ever."""
    whole_s = conn._reauth.session_lifetime_ms / 1000
    return conn._reauth.authenticated_at + whole_s - time.monotonic() if whole_s else None


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class KeptConnections(Generic[K, V]):
    """By key, what has connections, for one user at a time. What is kept is closed when the process ends. Kept by the
    process, too: one that was forked from another must not use its connections."""

    def __init__(self, close: Callable[[V], object]) -> None:
        self._close = close
        self._kept: dict[tuple[int, K], V] = {}
        atexit.register(self.close_all)  # or kafka-python's loop is torn down in any order, and says so

    def pop(self, key: K) -> V | None:
        """What was kept by this key: the caller's alone from now on."""
        return self._kept.pop((os.getpid(), key), None)

    def keep(self, key: K, kept: V) -> None:
        """Let the next one take it. What another user has kept meanwhile is closed."""
        own = os.getpid(), key
        replaced, self._kept[own] = self._kept.get(own), kept
        if replaced is not None:
            self._close(replaced)

    def close_all(self) -> None:
        """Close what this process has kept."""
        while self._kept:
            (process, _), kept = self._kept.popitem()
            if process == os.getpid():
                self._close(kept)
