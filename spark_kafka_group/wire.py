"""The only module that knows kafka-python's inside.

Two halves. :class:`GroupClient` serves the driver: metadata, log offsets, membership, commits. :class:`Brokers` and
:class:`FetchConnection` serve executors: kafka-python connects, agrees on versions and authenticates, then the socket
is taken over in blocking mode, because kafka-python's transport receives 4 KiB at a time.

kafka-python's errors become errors of this package here; nothing of kafka-python leaves this module.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import struct
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import kafka.errors as kafka_errors
from kafka import KafkaConsumer
from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from kafka.net.compat import KafkaNetClient
from kafka.protocol.consumer import FetchRequest, FetchResponse, LeaveGroupRequest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaTopicPartition

from spark_kafka_group.errors import (
    BrokerError,
    BrokerTimeoutError,
    CommitError,
    FencedError,
    JoinTimeoutError,
    MembershipError,
    MembershipLostError,
)
from spark_kafka_group.offsets import TopicPartition
from spark_kafka_group.options import Options

log = logging.getLogger(__name__)

METADATA_MAX_AGE_MS = 30_000
"""How late a new topic or partition may be noticed; Kafka's five minutes is long for who knows Spark's source."""
RETRY_BACKOFF_S = 0.1
LARGEST_BATCH = 128 * 1024 * 1024
"""Bytes that one record batch may have, whatever the fetch options say, so that a large record still gets through."""


@dataclass(frozen=True)
class GroupMember:
    """A member as the leader sees it."""

    member_id: str
    instance_id: str | None
    topics: tuple[str, ...]


@dataclass(frozen=True)
class Generation:
    """One generation of the group, as this member sees it.

    Attributes
    ----------
    members
        Number of members; known to the leader only, else None.
    assignment
        Partitions this member owns.
    """

    id: int
    member_id: str
    leader: bool
    members: int | None
    assignment: frozenset[TopicPartition]

    @property
    def alone(self) -> bool:
        return self.members == 1


@dataclass(frozen=True)
class Committed:
    """What the group has committed for a partition, and the note its writer left with it."""

    offset: int
    metadata: str


Assign = Callable[[Sequence[GroupMember], Mapping[str, Collection[int]]], dict[str, list[TopicPartition]]]
"""An assignment strategy: members and the partitions of each topic to the partitions of each member id."""


class _Assignor(AbstractPartitionAssignor):  # type: ignore[misc]
    """Lets kafka-python's coordinator call a strategy of ours, and remembers how many members the leader saw."""

    def __init__(self, name: str, assign: Assign) -> None:
        self._name = name
        self._assign = assign
        self.members: int | None = None

    @property
    def name(self) -> str:
        return self._name

    def metadata(self, topics: Collection[str]) -> Any:
        self.members = None  # a follower does not learn it
        return ConsumerProtocolSubscription(0, sorted(topics), b"")

    def assign(self, cluster: Any, members: Sequence[Any]) -> dict[str, Any]:
        self.members = len(members)
        known = [GroupMember(m.member_id, m.group_instance_id, tuple(m.metadata.topics)) for m in members]
        partitions = {t: cluster.partitions_for_topic(t) or set() for m in known for t in m.topics}
        assignments = {}
        for member_id, owned in self._assign(known, partitions).items():
            topics: dict[str, list[int]] = {}
            for tp in sorted(owned):
                topics.setdefault(tp.topic, []).append(tp.partition)
            assignments[member_id] = ConsumerProtocolAssignment(0, sorted(topics.items()), b"")
        return assignments

    def on_assignment(self, assignment: Any, generation: int) -> None:
        pass


@contextlib.contextmanager
def _translated(doing: str) -> Iterator[None]:
    """Turn kafka-python's errors into ours; `doing` says what was being done."""
    try:
        yield
    except kafka_errors.FencedInstanceIdError as error:
        raise FencedError(
            f"{doing}: another process has joined with this query's group.instance.id, so this one must not go on"
        ) from error
    except (
        kafka_errors.CommitFailedError,
        kafka_errors.UnknownMemberIdError,
        kafka_errors.IllegalGenerationError,
    ) as error:
        raise MembershipLostError(f"{doing}: the group no longer counts this driver as a member: {error}") from error
    except (kafka_errors.KafkaTimeoutError, kafka_errors.RequestTimedOutError) as error:
        raise BrokerTimeoutError(f"{doing}: no answer within kafka.request.timeout.ms: {error}") from error
    except kafka_errors.KafkaError as error:
        raise BrokerError(f"{doing}: {type(error).__name__}: {error}") from error


def _connection_configs(options: Options, role: str) -> dict[str, Any]:
    """What every connection needs, as kafka-python names it. Security settings will join here."""
    return {
        "bootstrap_servers": options.bootstrap_servers.split(","),
        "client_id": f"{options.client_id}-{role}",
        "request_timeout_ms": options.request_timeout_ms,
    }


class GroupClient:
    """Kafka as the driver sees it. Nothing joins the group before :meth:`join`.

    Not for several threads: kafka-python's own I/O thread sends heartbeats, everything else is called by one thread.

    Parameters
    ----------
    group_id
        None for metadata and log offsets only.
    instance_id
        Static membership (KIP-345); None for a dynamic member.
    strategies
        Assignment strategies by the name they have in the group protocol, most preferred first.
    """

    def __init__(
        self,
        options: Options,
        group_id: str | None = None,
        instance_id: str | None = None,
        strategies: Mapping[str, Assign] | None = None,
    ) -> None:
        self._options = options
        self._group_id = group_id
        self._assignors = [_Assignor(name, assign) for name, assign in (strategies or {}).items()]
        clients: list[KafkaNetClient] = []

        def make_client(**configs: Any) -> KafkaNetClient:
            clients.append(KafkaNetClient(**configs))
            return clients[-1]

        configs = _connection_configs(options, "driver") | {
            "group_id": group_id,
            "group_instance_id": instance_id,
            "enable_auto_commit": False,
            "allow_auto_create_topics": False,
            "session_timeout_ms": options.session_timeout_ms,
            "heartbeat_interval_ms": options.heartbeat_interval_ms,
            "max_poll_interval_ms": options.max_poll_interval_ms,
            "fetch_max_wait_ms": options.fetch_max_wait_ms,
            "bootstrap_timeout_ms": options.request_timeout_ms,
            "metrics_enabled": False,
            "metadata_max_age_ms": METADATA_MAX_AGE_MS,
            "kafka_client": make_client,
        }
        if self._assignors:
            configs["partition_assignment_strategy"] = self._assignors
        try:
            with _translated(f"connecting to {options.bootstrap_servers}"):
                self._consumer = KafkaConsumer(**configs)
        except BaseException:
            # KafkaConsumer started its I/O thread before it failed and keeps no handle to stop it.
            for client in clients:
                client.close()
            raise
        self._coordinator = self._consumer._coordinator
        self._manager = self._consumer._client._manager
        # A running micro-batch is progress, however long: the client must not leave by itself. The rebalance timeout
        # sent to the broker is the coordinator's own copy of the setting and stays.
        self._coordinator.heartbeat.config["max_poll_interval_ms"] = float("inf")

    # Metadata and log offsets

    def partitions(self, topics: Collection[str]) -> set[TopicPartition]:
        """Partitions of those of `topics` that exist, asked of the cluster now.

        Raises
        ------
        BrokerError
        """
        cluster = self._manager.cluster
        cluster.set_topics(topics)

        def refresh(left_ms: float) -> None:
            self._run(cluster.refresh_metadata)
            if cluster.unauthorized_topics:
                raise kafka_errors.TopicAuthorizationFailedError(cluster.unauthorized_topics)

        self._retried(f"looking up partitions of {', '.join(sorted(topics))}", refresh)
        return self.known_partitions(topics)

    def known_partitions(self, topics: Collection[str]) -> set[TopicPartition]:
        """Partitions of `topics` as the cluster last told; no I/O."""
        cluster = self._manager.cluster
        return {TopicPartition(t, p) for t in topics for p in cluster.partitions_for_topic(t) or ()}

    def beginning_offsets(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """First offset of each log."""
        return self._log_offsets(tps, self._consumer.beginning_offsets, "looking up first offsets")

    def end_offsets(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Offset the next record will get, of each log."""
        return self._log_offsets(tps, self._consumer.end_offsets, "looking up end offsets")

    def _log_offsets(
        self, tps: Collection[TopicPartition], lookup: Callable[..., Any], doing: str
    ) -> dict[TopicPartition, int]:
        if not tps:
            return {}
        wanted = [KafkaTopicPartition(*tp) for tp in tps]
        found = self._retried(
            f"{doing} of {', '.join(map(str, sorted(tps)))}", lambda left_ms: lookup(wanted, timeout_ms=left_ms)
        )
        return {TopicPartition(tp.topic, tp.partition): offset for tp, offset in found.items()}

    def committed(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, Committed]:
        """What the group has committed; a partition without a committed offset is not in the result."""
        wanted = [KafkaTopicPartition(*tp) for tp in tps]
        found = self._retried(
            f"looking up committed offsets of group {self._group_id}",
            lambda left_ms: self._coordinator.fetch_committed_offsets(wanted, timeout_ms=left_ms),
        )
        return {
            TopicPartition(tp.topic, tp.partition): Committed(o.offset, o.metadata or "") for tp, o in found.items()
        }

    # Membership

    def subscribe(self, topics: Collection[str]) -> None:
        """Say which topics :meth:`join` subscribes to. Local; sends nothing."""
        self._consumer.subscribe(sorted(topics))

    def join(self) -> Generation:
        """Be a member: join, or rejoin when the group rebalances, and take the assignment.

        Waits for the group's other members up to kafka.max.poll.interval.ms, as any consumer does.

        Raises
        ------
        FencedError, MembershipError, BrokerError
        """
        options = self._options
        timeout_ms = max(options.request_timeout_ms, options.max_poll_interval_ms + 5_000)

        def settle(left_ms: float) -> None:
            while self.rejoin_needed():
                if not self._coordinator.ensure_active_group(timeout_ms=left_ms):
                    raise JoinTimeoutError(
                        f"group {self._group_id} could not be joined within {timeout_ms} ms: "
                        f"another member, or the broker, does not answer"
                    )

        try:
            self._retried(f"joining group {self._group_id}", settle, timeout_ms)
        except BrokerTimeoutError:
            raise
        except BrokerError as error:
            raise MembershipError(str(error)) from error
        return self.current()

    def request_rejoin(self) -> None:
        """Make the next :meth:`join` send a JoinGroup; the leader's starts a new generation."""
        self._coordinator.request_rejoin()

    def rejoin_needed(self) -> bool:
        """Whether the group rebalances, membership was lost, or subscribed topics got partitions."""
        return bool(self._coordinator.need_rejoin()) or self._coordinator.generation_if_stable() is None

    def lost(self) -> bool:
        """Whether the coordinator has said that this driver is no longer a member."""
        return bool(self._coordinator._generation.is_lost())

    def check_not_fenced(self) -> None:
        """Notice a fencing that only the heartbeats have seen: kafka-python stops them and says nothing.

        Raises
        ------
        FencedError
        """
        coordinator = self._coordinator
        if coordinator.stable() and not coordinator._heartbeat_enabled:
            raise FencedError(
                f"another process has joined group {self._group_id} as {coordinator.group_instance_id}: "
                f"this query must not go on"
            )

    def current(self) -> Generation:
        """The generation this member is in."""
        generation = self._coordinator._generation
        members = [a.members for a in self._assignors if a.name == generation.protocol]
        leader = self._coordinator._is_leader
        owned = self._consumer.assignment()
        return Generation(
            id=generation.generation_id,
            member_id=generation.member_id,
            leader=leader,
            members=members[0] if leader and members else None,
            assignment=frozenset(TopicPartition(tp.topic, tp.partition) for tp in owned),
        )

    def commit(self, offsets: Mapping[TopicPartition, int], metadata: str, generation: int) -> None:
        """Commit as a member, under `generation` and no other. Retried on retriable errors.

        Raises
        ------
        MembershipLostError
            When this driver is no longer in that generation.
        FencedError, CommitError
        """
        current = self._coordinator.generation_if_stable()
        if current is None or current.generation_id != generation:
            raise MembershipLostError(f"generation {generation} of group {self._group_id} is over")
        wanted = {KafkaTopicPartition(*tp): OffsetAndMetadata(offset, metadata, -1) for tp, offset in offsets.items()}
        try:
            self._retried(
                f"committing offsets of group {self._group_id}",
                lambda left_ms: self._coordinator.commit_offsets_sync(wanted, timeout_ms=left_ms),
            )
        except BrokerError as error:
            raise CommitError(str(error)) from error

    def leave(self) -> None:
        """Leave the group now, static or not; answers of a dead coordinator are not waited for.

        kafka-python never sends LeaveGroup for a static member. The request names member id and instance id, so that
        a driver that was replaced cannot throw out its successor.
        """
        coordinator = self._coordinator
        member_id = coordinator._generation.member_id
        if not member_id or coordinator.coordinator_unknown():
            return
        identity = LeaveGroupRequest.MemberIdentity(
            member_id=member_id, group_instance_id=coordinator.group_instance_id, reason="the query ended"
        )
        request = LeaveGroupRequest(group_id=self._group_id, member_id=member_id, members=[identity])
        try:
            with _translated(f"leaving group {self._group_id}"):
                self._run(lambda: self._manager.send(request, node_id=coordinator.coordinator_id))
        except (BrokerError, MembershipError) as error:
            log.warning("group %s: could not leave, the session will time out: %s", self._group_id, error)
        coordinator.reset_generation()

    def close(self) -> None:
        """Stop the I/O thread and close connections; does not leave. Harmless when repeated."""
        coordinator = self._coordinator
        coordinator.reset_generation()  # or close() would leave for a dynamic member, which is leave()'s to say
        self._consumer.close(autocommit=False, timeout_ms=self._options.request_timeout_ms)

    def _retried(self, doing: str, call: Callable[[float], Any], timeout_ms: int | None = None) -> Any:
        """Call with the milliseconds left until it works, at most `timeout_ms` (kafka.request.timeout.ms).

        kafka-python retries most retriable errors itself, but lets some of those through that a lost connection makes.
        """
        deadline = time.monotonic() + (timeout_ms or self._options.request_timeout_ms) / 1000
        with _translated(doing):
            while True:
                try:
                    return call(max(1.0, (deadline - time.monotonic()) * 1000))
                except kafka_errors.RetriableError:
                    if time.monotonic() + RETRY_BACKOFF_S >= deadline:
                        raise
                    time.sleep(RETRY_BACKOFF_S)

    def _run(self, call: Callable[[], Any]) -> Any:
        async def bounded() -> Any:
            return await self._manager.wait_for(self._manager.call_soon(call), self._options.request_timeout_ms)

        return self._manager.run(bounded)


@dataclass(frozen=True)
class FetchedPartition:
    """One partition of a fetch response."""

    tp: TopicPartition
    error: str | None
    """Kafka's name of the error, such as ``OffsetOutOfRangeError``; None when there is none."""
    retriable: bool
    records: bytes


class FetchConnection:
    """A blocking connection to one broker that speaks Fetch; requests may be sent ahead of reading responses.

    Errors of the connection are OSError: the caller drops it and makes another.
    """

    def __init__(self, sock: socket.socket, options: Options, version: int) -> None:
        self._sock = sock
        self._sock.settimeout(options.request_timeout_ms / 1000)
        self._options = options
        self._version = version
        self._correlation_id = 0
        self._in_flight: list[int] = []
        self._not_before = 0.0
        self._size = bytearray(4)
        self._frame = bytearray(1 << 16)
        self._frame_limit = max(LARGEST_BATCH, options.fetch_max_bytes + options.max_partition_fetch_bytes)

    @property
    def idle(self) -> bool:
        """Whether every request has had its response read."""
        return not self._in_flight

    def send(self, positions: Mapping[TopicPartition, int]) -> None:
        """Ask for records from each position on; the broker fills the response in this order."""
        throttled = self._not_before - time.monotonic()
        if throttled > 0:
            time.sleep(throttled)  # the broker asked for it (KIP-219)
        topics: dict[str, list[Any]] = {}
        topic_type = FetchRequest.FetchTopic
        for tp, position in positions.items():
            topics.setdefault(tp.topic, []).append(
                topic_type.FetchPartition(
                    partition=tp.partition,
                    current_leader_epoch=-1,
                    fetch_offset=position,
                    last_fetched_epoch=-1,
                    log_start_offset=-1,
                    partition_max_bytes=self._options.max_partition_fetch_bytes,
                )
            )
        request = FetchRequest(
            version=self._version,
            replica_id=-1,
            max_wait_ms=self._options.fetch_max_wait_ms,
            min_bytes=self._options.fetch_min_bytes,
            max_bytes=self._options.fetch_max_bytes,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[topic_type(topic=topic, partitions=partitions) for topic, partitions in topics.items()],
            forgotten_topics_data=[],
            rack_id="",
        )
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        request.with_header(correlation_id=self._correlation_id, client_id=f"{self._options.client_id}-executor")
        self._sock.sendall(request.encode(framed=True, header=True))
        self._in_flight.append(self._correlation_id)

    def receive(self) -> list[FetchedPartition]:
        """The response to the oldest request not yet answered.

        Raises
        ------
        OSError
            When the connection is broken, or what came is no response.
        """
        self._receive_into(memoryview(self._size))
        (size,) = struct.unpack(">i", self._size)
        if not 4 <= size <= self._frame_limit:
            raise ConnectionError(f"a response of {size} bytes, where at most {self._frame_limit} can be")
        if size > len(self._frame):
            self._frame = bytearray(size)
        with memoryview(self._frame) as whole, whole[:size] as frame:
            self._receive_into(frame)
            (correlation_id,) = struct.unpack_from(">i", frame)
            if correlation_id != self._in_flight.pop(0):
                raise ConnectionError("the response belongs to another request")
            try:
                response = FetchResponse.decode(frame[4:], version=self._version)
            except (ValueError, IndexError, struct.error) as error:
                raise ConnectionError(f"not a fetch response: {error}") from error
        if response.throttle_time_ms:
            self._not_before = time.monotonic() + response.throttle_time_ms / 1000
        if response.error_code:
            raise ConnectionError(f"fetch refused: {kafka_errors.for_code(response.error_code).__name__}")
        return [_fetched_partition(topic.topic, data) for topic in response.responses for data in topic.partitions]

    def _receive_into(self, view: memoryview) -> None:
        received, size = 0, len(view)
        while received < size:
            count = self._sock.recv_into(view[received:])
            if not count:
                raise ConnectionError("the broker closed the connection")
            received += count

    def close(self) -> None:
        """Close the socket; responses still to come are lost."""
        self._sock.close()


def _fetched_partition(topic: str, data: Any) -> FetchedPartition:
    error = kafka_errors.for_code(data.error_code) if data.error_code else None
    return FetchedPartition(
        tp=TopicPartition(topic, data.partition_index),
        error=error.__name__ if error else None,
        retriable=error is not None and issubclass(error, kafka_errors.RetriableError),
        records=data.records or b"",
    )


class Brokers:
    """The cluster as an executor sees it: who leads a partition, and connections to leaders."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._client: KafkaNetClient | None = None
        self._connections: dict[int, FetchConnection] = {}

    def leaders(self, tps: Collection[TopicPartition], refresh: bool) -> dict[TopicPartition, int]:
        """Node id of the leader of each partition that has one.

        Parameters
        ----------
        refresh
            Ask the cluster even where an answer is known: a leader may have moved.

        Raises
        ------
        BrokerError
        """
        topics = {tp.topic for tp in tps}
        with _translated(f"looking up leaders of {', '.join(sorted(topics))}"):
            cluster = self._bootstrapped().cluster
            known = self._known_leaders(cluster, tps)
            if refresh or len(known) < len(tps):
                cluster.set_topics(set(cluster._topics) | topics)
                self._run(cluster.refresh_metadata)
                known = self._known_leaders(cluster, tps)
        return known

    @staticmethod
    def _known_leaders(cluster: Any, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        leaders = ((tp, cluster.leader_for_partition(KafkaTopicPartition(*tp))) for tp in tps)
        return {tp: node for tp, node in leaders if node is not None and node >= 0}

    def log_bounds(self, tp: TopicPartition) -> tuple[int, int]:
        """First offset of a partition's log, and the one its next record will get.

        Raises
        ------
        BrokerError
        """
        client = GroupClient(self._options)
        try:
            return client.beginning_offsets([tp])[tp], client.end_offsets([tp])[tp]
        finally:
            client.close()

    def connection(self, node_id: int) -> FetchConnection:
        """The cached connection to a node, or a new one.

        Raises
        ------
        BrokerError
        """
        connection = self._connections.get(node_id)
        if connection is None:
            with _translated(f"connecting to node {node_id}"):
                connection = self._connections[node_id] = self._connect(node_id)
        return connection

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
            client = KafkaNetClient(**_connection_configs(self._options, "executor"))
            client.cluster.config["allow_auto_create_topics"] = False
            try:
                client._manager.bootstrap(self._options.request_timeout_ms)
            except BaseException:
                client.close()
                raise
            self._client = client
        return self._client

    def _run(self, call: Callable[[], Any]) -> Any:
        manager = self._bootstrapped()._manager

        async def bounded() -> Any:
            return await manager.wait_for(manager.call_soon(call), self._options.request_timeout_ms)

        return manager.run(bounded)

    def _connect(self, node_id: int) -> FetchConnection:
        client = self._bootstrapped()
        manager, net = client._manager, client._net

        async def connected() -> Any:
            return await manager.get_connection(node_id)

        conn = self._run(connected)
        version = conn.broker_version_data.api_version(FetchRequest, max_version=11)
        # Take the socket over: kafka-python's loop forgets it, as its own close does, but leaves it open.
        transport = conn.transport
        sock = transport._sock
        transport.pause_reading()
        with contextlib.suppress(KeyError, ValueError):
            net.unregister_event(sock, selectors.EVENT_READ | selectors.EVENT_WRITE)
        for task in (transport._read_task, transport._write_task):
            if task is not None:
                net.cancel(task)
        transport._sock = transport._read_task = transport._write_task = None
        conn._reauth.cancel()
        manager._conns.pop(node_id, None)
        return FetchConnection(sock, self._options, version)
