"""A group and the logs it reads, looked at from outside: nothing here joins a group or reads on its behalf."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import kafka.errors as kafka_errors
from kafka.protocol.admin import ListGroupsRequest
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest
from kafka.structs import TopicPartition as KafkaTopicPartition

from spark_kafka_group.errors import BrokerError, BrokerTimeoutError, CommitError
from spark_kafka_group.options import ClientOptions
from spark_kafka_group.values.offsets import OffsetAndTimestamp, TopicPartition
from spark_kafka_group.wire.client.connect import connected_consumer, retried, run_within, translated
from spark_kafka_group.wire.client.reachability import address
from spark_kafka_group.wire.coordinator_responses import Refusal
from spark_kafka_group.wire.group.all_groups import GroupOffsets, checked, group_offsets, kind_of, listed_use
from spark_kafka_group.wire.group.members import CLASSIC, CONSUMER, NO_GROUP, DescribedGroup, described
from spark_kafka_group.wire.group.membership import Committed
from spark_kafka_group.wire.group.offset_requests import commit_request, fetch_request, fetched, partitions_of
from spark_kafka_group.wire.log_ends import FetchedEnds
from spark_kafka_group.wire.log_times import believed
from spark_kafka_group.wire.reactions import RETRIED, Request, reaction_to

POLL_MS = 200
RECORDS_AT_ONCE = 10_000


@dataclass(frozen=True)
class BrokerNode:
    """A broker."""

    id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"node {self.id} ({address(self.host, self.port)})"


@dataclass(frozen=True)
class LogRecord:
    """A record of a log; the timestamp is None where the broker has none."""

    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None


class GroupAdmin:
    """A group and the logs it reads, looked at from outside. A context manager. Everything here raises BrokerError."""

    def __init__(self, options: ClientOptions) -> None:
        self._timeout_ms = options.connection.request_timeout_ms
        # The reset policy is for a log whose start moved while it was read.
        self._consumer = connected_consumer(options, "admin", group_id=None, auto_offset_reset="earliest")
        self._manager = self._consumer._client._manager
        self._fetched_ends = FetchedEnds(self._manager, lambda call: run_within(self._manager, self._timeout_ms, call))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close connections."""
        self._consumer.close(autocommit=False, timeout_ms=self._timeout_ms)

    # Groups

    def coordinator(self, group: str) -> BrokerNode:
        """The broker that coordinates a group, as the cluster tells."""
        request = FindCoordinatorRequest(key=group, key_type=0, max_version=3)
        found = self._asked(f"looking up the coordinator of group {group}", lambda: self.send(request))
        return BrokerNode(found.node_id, found.host, found.port)

    def groups(self) -> dict[str, str]:
        """Names of all groups of the cluster, and the kind of each, as :class:`DescribedGroup` has it."""
        nodes = [broker.node_id for broker in self._manager.cluster.brokers()]
        return {listed.group_id: kind_of(listed) for node in nodes for listed in self._listed(node)}

    def other_groups(self) -> dict[str, str]:
        """Names of all groups of the cluster that are not of consumers, and what uses each of them."""
        nodes = [broker.node_id for broker in self._manager.cluster.brokers()]
        uses = {listed.group_id: listed_use(listed) for node in nodes for listed in self._listed(node)}
        return {group: use for group, use in uses.items() if use != CONSUMER}

    def group_offsets(self) -> dict[str, GroupOffsets]:
        """All groups of consumers of the cluster, with what each has committed, in few round trips."""
        manager = self._manager

        def look_up(left_ms: float) -> Any:
            return run_within(manager, left_ms, lambda: group_offsets(manager))

        found: dict[str, GroupOffsets] = self.retried("looking at all groups", look_up)
        return found

    def describe(self, group: str) -> DescribedGroup:
        """State and members of a group."""

        def send(request: Any) -> Any:
            return self.send(request, self.coordinator(group).id)

        found = self.retried(f"describing group {group}", lambda left_ms: described(send, group))
        return self._of_other_kind(group) if found == NO_GROUP else found

    def _of_other_kind(self, group: str) -> DescribedGroup:
        """A share group, another kind of group, or none: of neither protocol of consumers."""
        for found in self._listed(self.coordinator(group).id):
            if found.group_id == group and kind_of(found) not in (CLASSIC, CONSUMER):
                return DescribedGroup(found.group_state, kind_of(found), found.protocol_type, "")
        return NO_GROUP

    def _listed(self, node_id: int) -> list[Any]:
        """Groups that a node coordinates."""
        doing = f"listing groups of node {node_id}"
        return list(self._asked(doing, lambda: self.send(ListGroupsRequest(), node_id)).groups)

    def committed(self, group: str) -> dict[TopicPartition, Committed]:
        """Everything the group has committed."""

        def look_up(left_ms: float) -> Any:
            return fetched(self.send(fetch_request(group, None, stable=False), self.coordinator(group).id))

        doing = f"looking up committed offsets of group {group}"
        found = {}
        for tp, p in partitions_of(self.retried(doing, look_up)):
            if p.error_code:
                raise BrokerError(f"{doing}: {tp}: {kafka_errors.for_code(p.error_code).__name__}")
            if p.committed_offset >= 0:
                found[tp] = Committed(p.committed_offset, p.metadata or "")
        return found

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit, with empty metadata, for a group without members, as Kafka's own tool does. Raises CommitError."""
        request = commit_request(group, offsets, "")
        doing = f"committing offsets of group {group}"

        def send() -> dict[TopicPartition, type[kafka_errors.KafkaError]]:
            response = self.send(request, self.coordinator(group).id)
            found = {tp: kafka_errors.for_code(p.error_code) for tp, p in partitions_of(response) if p.error_code}
            for error in found.values():
                if reaction_to(error, Request.COMMIT) in RETRIED:
                    raise error(doing)
            return found

        refused = self.retried(doing, lambda left_ms: send())
        if refused:
            said = ", ".join(f"{tp}: {error.__name__}" for tp, error in sorted(refused.items()))
            raise CommitError(f"{doing}: refused: {said}")

    # Logs

    def leaders(self, topics: Collection[str]) -> dict[TopicPartition, BrokerNode | None]:
        """Partitions of the `topics` that exist, and the leader of each; None for a partition without a leader."""
        cluster = self._manager.cluster
        cluster.set_topics(topics)
        self.retried(
            f"looking up partitions of {', '.join(sorted(topics))}",
            lambda left_ms: run_within(self._manager, left_ms, cluster.refresh_metadata),
        )
        found: dict[TopicPartition, BrokerNode | None] = {}
        for topic in topics:
            for partition in sorted(cluster.partitions_for_topic(topic) or ()):
                leader = cluster.broker_metadata(cluster.leader_for_partition(KafkaTopicPartition(topic, partition)))
                node = None if leader is None else BrokerNode(leader.node_id, leader.host, leader.port)
                found[TopicPartition(topic, partition)] = node
        return found

    def topics_by_id(self) -> dict[str, str]:
        """Names of topics by their ids (KIP-516), as far as the user may see them; none before Kafka 2.8."""
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        found = self.retried("looking up topics", lambda left_ms: self.send(request)).topics
        return {str(t.topic_id): t.name for t in found if t.topic_id is not None and t.name is not None}

    def log_ranges(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """First offset of each log, and the one its next record will get. Logs without a leader are waited for."""
        first = self._log_offsets(tps, self._consumer.beginning_offsets)
        last = self._ends(tps)
        return {tp: (first[tp], last[tp]) for tp in tps}

    def log_ends(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset that the next record of each log will get, of the logs that have a leader."""
        leaders = self.leaders(sorted({tp.topic for tp in tps})) if tps else {}
        there = [tp for tp in tps if leaders.get(tp) is not None]
        return self._ends(there)

    def _ends(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        def look_up(of: Collection[TopicPartition]) -> dict[TopicPartition, int]:
            return self._log_offsets(of, self._consumer.end_offsets)

        return self._fetched_ends.corrected(look_up(tps), False, look_up)

    def offsets_at(self, tps: Collection[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int | None]:
        """First offset whose record is as new as `timestamp_ms` or newer, of each log; None where there is none."""

        def lookup(wanted: Collection[Any], timeout_ms: float) -> Any:
            found = self._consumer.offsets_for_times(dict.fromkeys(wanted, timestamp_ms), timeout_ms=timeout_ms)
            return {
                tp: None
                if at is None or at.offset < 0
                else believed(TopicPartition(*tp), timestamp_ms, OffsetAndTimestamp(*at[:2])).offset
                for tp, at in found.items()
            }

        return self._log_offsets(tps, lookup)

    def read(self, tp: TopicPartition, start: int, end: int) -> Iterator[LogRecord]:
        """Records with start <= offset < end, as they lie in the log: also those of transactions that were aborted.
        Ends where the log was at `end`, whether that was a record, a transaction's marker, or compacted away."""
        for found in self._polled({tp: start}, {tp: end}):
            yield from (record for _, records in found for record in records)

    def first_records(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, LogRecord]:
        """The first record at or after each start and before the end, of logs that have one there."""
        first: dict[TopicPartition, LogRecord] = {}
        for found in self._polled(starts, ends):
            for tp, records in found:
                if records and tp not in first:
                    first[tp] = records[0]
                    self._consumer.pause(KafkaTopicPartition(*tp))
            if len(first) == len(starts):
                break
        return first

    def _polled(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> Iterator[list[tuple[TopicPartition, list[LogRecord]]]]:
        """Records before the ends, as they come, until every partition that is not paused is at its end."""
        consumer = self._consumer
        wanted = {tp: KafkaTopicPartition(*tp) for tp, start in starts.items() if start < ends[tp]}
        doing = f"reading {', '.join(map(str, sorted(wanted)))}"
        consumer.assign(list(wanted.values()))
        for tp, kafka_tp in wanted.items():
            consumer.seek(kafka_tp, starts[tp])
        before: dict[TopicPartition, int] = {}
        deadline = 0.0
        while left := self._before_their_ends(wanted, ends):
            if left != before:
                before, deadline = left, time.monotonic() + self._timeout_ms / 1000
            elif time.monotonic() > deadline:
                raise BrokerTimeoutError(f"{doing}: no records within kafka.request.timeout.ms")
            with translated(doing):
                polled = _as_a_reader(lambda: consumer.poll(timeout_ms=POLL_MS, max_records=RECORDS_AT_ONCE))
            yield [
                (tp, [_log_record(r) for r in polled.get(kafka_tp, ()) if r.offset < ends[tp]])
                for tp, kafka_tp in wanted.items()
            ]

    def _before_their_ends(
        self, wanted: Mapping[TopicPartition, KafkaTopicPartition], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Positions of partitions that are neither paused nor at their ends."""
        going = set(wanted.values()) - self._consumer.paused()
        positions = {tp: self._consumer.position(kafka_tp) for tp, kafka_tp in wanted.items() if kafka_tp in going}
        return {tp: position for tp, position in positions.items() if position < ends[tp]}

    def _log_offsets(self, tps: Collection[TopicPartition], lookup: Callable[..., Any]) -> dict[TopicPartition, Any]:
        if not tps:
            return {}
        wanted = [KafkaTopicPartition(*tp) for tp in tps]
        found = self.retried(
            f"looking up offsets of {', '.join(map(str, sorted(tps)))}",
            lambda left_ms: lookup(wanted, timeout_ms=left_ms),
        )
        return {TopicPartition(tp.topic, tp.partition): offset for tp, offset in found.items()}

    # Requests

    def send(self, request: Any, node_id: int | None = None) -> Any:
        """The response to a request, of this node or of any; raises kafka-python's errors."""
        return run_within(self._manager, self._timeout_ms, lambda: self._manager.send(request, node_id=node_id))

    def _asked(self, doing: str, send: Callable[[], Any]) -> Any:
        """A response without an error; asked again while it is one that passes."""
        return self.retried(doing, lambda left_ms: checked(send()))

    def retried(self, doing: str, call: Callable[[float], Any]) -> Any:
        """Call with the milliseconds left until it works, at most kafka.request.timeout.ms."""
        deadline = time.monotonic() + self._timeout_ms / 1000
        with translated(doing, failure=lambda: self._manager.last_failure):
            return retried(deadline, call)


def _as_a_reader(poll: Callable[[], Any]) -> Any:
    """Call `poll`. An error about a topic names the right to read it: the right to describe it is not enough."""
    try:
        return poll()
    except kafka_errors.TopicAuthorizationFailedError as error:
        topics = frozenset(error.args[0]) if error.args else frozenset()
        error.refusal = Refusal("TOPIC_AUTHORIZATION_FAILED", Request.FETCH, topics)
        raise


def _log_record(record: Any) -> LogRecord:
    timestamp_ms = None if record.timestamp is None or record.timestamp < 0 else record.timestamp
    return LogRecord(record.offset, timestamp_ms, record.key, record.value)
