"""Kafka as the driver sees it: metadata, log offsets, membership, commits."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import kafka.errors as kafka_errors
from kafka import KafkaConsumer
from kafka.net.compat import KafkaNetClient
from kafka.protocol.consumer import LeaveGroupRequest
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
from spark_kafka_group.wire.connect import connection_configs, run_within, translated
from spark_kafka_group.wire.membership import Assign, Assignor, Committed, Generation

log = logging.getLogger(__name__)

METADATA_MAX_AGE_MS = 30_000
"""How late a new topic or partition may be noticed; Kafka's five minutes is long for who knows Spark's source."""
RETRY_BACKOFF_S = 0.1


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
        self._assignors = [Assignor(name, assign) for name, assign in (strategies or {}).items()]
        clients: list[KafkaNetClient] = []

        def make_client(**configs: Any) -> KafkaNetClient:
            clients.append(KafkaNetClient(**configs))
            return clients[-1]

        configs = connection_configs(options, "driver") | {
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
            with translated(f"connecting to {options.bootstrap_servers}"):
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
            with translated(f"leaving group {self._group_id}"):
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
        with translated(doing):
            while True:
                try:
                    return call(max(1.0, (deadline - time.monotonic()) * 1000))
                except kafka_errors.RetriableError:
                    if time.monotonic() + RETRY_BACKOFF_S >= deadline:
                        raise
                    time.sleep(RETRY_BACKOFF_S)

    def _run(self, call: Callable[[], Any]) -> Any:
        return run_within(self._manager, self._options.request_timeout_ms, call)
