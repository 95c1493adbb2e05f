"""Commits for a group from a process that is not its member."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self, TypeVar

import kafka.errors as kafka_errors
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest

from spark_kafka_group.errors import BrokerError, CommitError, MembershipError
from spark_kafka_group.options import ClientOptions
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.client.connect import (
    connection_configs,
    ms_until,
    reached_client,
    retried,
    run_within,
    translated,
)
from spark_kafka_group.wire.group.members import described
from spark_kafka_group.wire.group.membership import Committed
from spark_kafka_group.wire.group.offset_requests import commit_request, fetch_request, fetched, partitions_of
from spark_kafka_group.wire.leader_epochs import NO_EPOCH
from spark_kafka_group.wire.reactions import Reaction, Request, reaction_to

DROP_UNSENT = (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
"""Closing a connection drops the bytes that the kernel has not sent yet, and would send once the network is back."""

Lacking = Callable[[Mapping[TopicPartition, Committed]], Mapping[TopicPartition, int]]
T = TypeVar("T")


@dataclass(frozen=True)
class LateCommit:
    """The group's committed offsets before, and the offsets that were committed for it."""

    before: Mapping[TopicPartition, Committed]
    offsets: Mapping[TopicPartition, int]


class NonMemberCommitter:
    """Looks up and commits a group's offsets, within kafka.request.timeout.ms in all, over its own connections. A
    context manager, for one thread; starts none. Raises BrokerError when no broker can be reached."""

    def __init__(self, options: ClientOptions, group_id: str) -> None:
        self._group_id = group_id
        self._deadline = time.monotonic() + options.connection.request_timeout_ms / 1000
        self._coordinator: int | None = None
        configs = connection_configs(options, "listener")
        configs["socket_options"] = [*configs["socket_options"], DROP_UNSENT]
        with translated(f"connecting to {options.connection.bootstrap_servers}"):
            # The query has reached brokers before.
            self._client = reached_client(configs, options.connection.request_timeout_ms, reached_before=True)
        self._manager = self._client._manager

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close connections. Harmless when repeated."""
        self._client.close()

    def commit(
        self,
        tps: Collection[TopicPartition],
        lacking: Lacking,
        metadata: str,
        generation: int,
        instance_id: str,
        epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> LateCommit | None:
        """Commit in the name of the member `instance_id` while it is there, and without a member once it has left.

        Each try looks up the committed offsets first: 1. a try fails, though the broker may have taken it, 2. the
        member commits a later batch in the same generation, 3. Kafka would take a second try of the earlier batch, and
        the group would go back. The look-up shows the offsets of step 2, so the second try sends nothing.

        `tps`, `epochs`: the partitions to look at, and the known leader epochs of their offsets.
        `lacking`: returns the offsets that the group lacks, from its committed ones.
        Returns None when `generation` is over: the member is in a later one, and commits itself.
        Raises CommitError when the member has left and the group has others, or refuses the commit.
        """
        try:
            with translated(f"committing offsets of group {self._group_id}"):
                return self._retried(lambda: self._commit(tps, lacking, metadata, generation, instance_id, epochs))
        except (BrokerError, MembershipError) as error:
            if reaction_to(error.__cause__, Request.COMMIT_FOR_MEMBER) is Reaction.LEFT_TO_MEMBER:
                return None
            raise CommitError(str(error)) from error

    def _commit(
        self,
        tps: Collection[TopicPartition],
        lacking: Lacking,
        metadata: str,
        generation: int,
        instance_id: str,
        epochs: Mapping[TopicPartition, int],
    ) -> LateCommit:
        members = self._members()
        # Right before the commit: a commit of the member between these two requests is not seen.
        before = self._fetch(tps)
        offsets = dict(lacking(before))
        if not offsets:
            return LateCommit(before, offsets)
        member_id = members.get(instance_id)
        if member_id is None and members:
            raise CommitError(
                f"the query has left group {self._group_id}, which has other members ({', '.join(sorted(members))}), "
                f"so Kafka accepts no commit from it"
            )
        if member_id is None:
            request = commit_request(self._group_id, offsets, metadata, epochs=epochs)
        else:
            request = commit_request(self._group_id, offsets, metadata, generation, member_id, instance_id, epochs)
        for tp, partition in partitions_of(self._asked(request)):
            _check(partition.error_code, str(tp))
        return LateCommit(before, offsets)

    def _members(self) -> dict[str, str]:
        """Member ids by the members' names."""
        return {member.name: member.member_id for member in described(self._asked, self._group_id).members}

    def _fetch(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, Committed]:
        # Stable: a commit of the member that is not replicated yet is waited for, and not set back.
        answer = fetched(self._asked(fetch_request(self._group_id, tps, stable=True)))
        committed = {}
        for tp, partition in partitions_of(answer):
            _check(partition.error_code, str(tp))
            if partition.committed_offset >= 0:
                epoch = partition.committed_leader_epoch
                committed[tp] = Committed(
                    partition.committed_offset, partition.metadata or "", NO_EPOCH if epoch is None else epoch
                )
        return committed

    def _asked(self, request: Any) -> Any:
        """The coordinator's response."""
        if self._coordinator is None:
            # Versions differ in whether they take one name or several; the broker's version decides.
            find = FindCoordinatorRequest(key=self._group_id, key_type=0, coordinator_keys=[self._group_id])
            response = self._run(lambda: self._manager.send(find))
            named = response.coordinators[0] if response.coordinators else response
            self._coordinator = self._manager.cluster.add_coordinator(named, CoordinatorType.GROUP, self._group_id)
        return self._run(lambda: self._manager.send(request, node_id=self._coordinator))

    def _retried(self, call: Callable[[], T]) -> T:
        def once(left_ms: float) -> T:
            try:
                return call()
            except kafka_errors.KafkaError:
                self._coordinator = None  # the next try looks it up
                raise

        return retried(self._deadline, once, Request.COMMIT_FOR_MEMBER)

    def _run(self, call: Callable[[], Any]) -> Any:
        return run_within(self._manager, ms_until(self._deadline), call)


def _check(error_code: int, about: str) -> None:
    if error_code:
        raise kafka_errors.for_code(error_code)(about)
