"""The cluster as the driver sees it without a group: which partitions there are, and the offsets of their logs."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeVar

import kafka.errors as kafka_errors
from kafka.protocol.consumer import IsolationLevel, OffsetSpec
from kafka.structs import TopicPartition as KafkaTopicPartition

from spark_kafka_group.errors import BrokerTimeoutError
from spark_kafka_group.options import ClientOptions
from spark_kafka_group.options.reading import Subscription
from spark_kafka_group.values.offsets import OffsetAndTimestamp, TopicPartition
from spark_kafka_group.wire.client.connect import REQUEST_TIMEOUT, run_within
from spark_kafka_group.wire.client.leaderless import NO_LEADER
from spark_kafka_group.wire.client.reachability import address
from spark_kafka_group.wire.consumer_calls import Calls
from spark_kafka_group.wire.coordinator_responses import refusal_of
from spark_kafka_group.wire.leader_epochs import NO_EPOCH, EpochAsked, can_be_asked, ends_of_epochs
from spark_kafka_group.wire.log_ends import FetchedEnds
from spark_kafka_group.wire.log_times import believed
from spark_kafka_group.wire.reactions import RETRIED, Request, reaction_to

log = logging.getLogger(__name__)

T = TypeVar("T")

LEADERS_HOLD_S = 0.9  # how long it is believed that a partition has no leader

LOOKUP_SLICE = 0.2
"""After this part of kafka.request.timeout.ms without an answer about a log, brokers are asked whether it still
exists."""


@contextlib.contextmanager
def reading_uncommitted(inside: Any) -> Iterator[None]:
    """Have kafka-python's fetcher, or coordinator, ask for what is not committed, or not stable, within the block."""
    configured, inside._isolation_level = inside._isolation_level, IsolationLevel.READ_UNCOMMITTED
    try:
        yield
    finally:
        inside._isolation_level = configured


class LogClient:
    """Partitions, their leaders, and the offsets of their logs. Not for several threads. `calls`: of the consumer that
    asks; None for one of its own, without a group. Raises BrokerError when no broker can be reached."""

    def __init__(self, options: ClientOptions, calls: Calls | None = None) -> None:
        self._options = options
        self._calls = calls or Calls(options)
        self._consumer = self._calls.consumer
        self._manager = self._calls.manager
        self._knows_epochs = can_be_asked(self._manager)
        self._leader_epochs: dict[tuple[str, int], int] = {}
        self._fetched_ends = FetchedEnds(self._manager, self._calls.run)
        self._leaders_asked_s = float("-inf")  # as some partitions had none, by time.monotonic()

    def end_within(self, timeout_ms: float) -> None:
        """Let no call take longer than until then: the query ends."""
        self._calls.end_within(timeout_ms)

    def close(self) -> None:
        """Stop the I/O thread and close connections. Harmless when repeated."""
        self._calls.close()

    # Metadata

    def reach(self, timeout_ms: float) -> None:
        """Ask any broker for metadata. Raises BrokerTimeoutError when none has answered by then; BrokerError."""
        self._calls.retried("looking for brokers", self._calls.refresh, timeout_ms)

    def brokers(self) -> list[str]:
        """Addresses of brokers in the last metadata; no I/O."""
        return sorted(address(broker.host, broker.port) for broker in self._manager.cluster.brokers())

    def partitions(self, subscription: Subscription) -> set[TopicPartition]:
        """Existing partitions of `subscription`, by new metadata. Raises BrokerError."""
        cluster = self._manager.cluster
        if subscription.pattern is None:
            cluster.set_topics(subscription.named())
        else:
            cluster.need_all_topic_metadata = True
        doing = f"looking up partitions of {subscription.pattern or ', '.join(sorted(subscription.named()))}"

        def refresh(left_ms: float) -> None:
            self._calls.run(cluster.refresh_metadata)
            if cluster.unauthorized_topics:
                raise kafka_errors.TopicAuthorizationFailedError(cluster.unauthorized_topics)

        self._in_attempts(doing, refresh)
        return self.known_partitions(subscription)

    def known_partitions(self, subscription: Subscription) -> set[TopicPartition]:
        """Existing partitions of `subscription` in the last metadata; no I/O."""
        cluster = self._manager.cluster
        if subscription.pattern is None:
            topics = subscription.named()
        else:
            topics = {topic for topic in cluster.topics() if subscription.includes(topic)}
        known = {TopicPartition(t, p) for t in topics for p in cluster.partitions_for_topic(t) or ()}
        return known & subscription.partitions if subscription.manual else known

    def existing(self, tps: Collection[TopicPartition], of_any: bool = False) -> set[TopicPartition]:
        """Those of `tps` that exist, asked of the cluster now. `of_any`: ask any broker, not the one that is connected:
        it may be cut off from the others, and not know it. Raises BrokerError."""
        manager = self._manager

        def refresh() -> Any:
            return manager.cluster.refresh_metadata(manager.any_node() if of_any else None)

        self._calls.retried(f"looking up partitions {_named(tps)}", lambda left_ms: self._calls.run(refresh))
        return self._of_known_topics(tps)

    def _of_known_topics(self, tps: Collection[TopicPartition]) -> set[TopicPartition]:
        partitions_of = self._manager.cluster.partitions_for_topic
        return {tp for tp in tps if tp.partition in (partitions_of(tp.topic) or ())}

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """Ids of topics in the last metadata (KIP-516); brokers before Kafka 2.8 give none. No I/O."""
        ids = {topic: self._manager.cluster.topic_id(topic) for topic in topics}
        return {topic: str(topic_id) for topic, topic_id in ids.items() if topic_id is not None}

    def racks(self) -> set[str] | None:
        """Racks of the brokers in the last metadata; None if replicas are on brokers that it lacks. No I/O."""
        brokers = self._manager.cluster.brokers()
        absent = {
            node
            for partitions in self._manager.cluster._partitions.values()
            for partition in partitions.values()
            for node in partition.replica_nodes
        } - {broker.node_id for broker in brokers}
        return None if absent else {broker.rack for broker in brokers if broker.rack}

    # Log offsets

    def beginning_offsets(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """First offset of each log; a partition that no longer exists is not in the result."""
        offsets: dict[TopicPartition, int] = self._log_offsets(
            tps, self._consumer.beginning_offsets, "looking up first offsets"
        )
        return offsets

    def offsets_at(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """First offset of each log as new as its time, None without one; without partitions that are gone."""

        records = self.offsets_for_times(times_ms)
        return {tp: None if record is None else record.offset for tp, record in records.items()}

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """As :meth:`offsets_at`, with the timestamps of these records."""

        def lookup(wanted: Collection[Any], timeout_ms: float) -> Any:
            wanted_times = {tp: times_ms[TopicPartition(tp.topic, tp.partition)] for tp in wanted}
            found = self._consumer.offsets_for_times(wanted_times, timeout_ms=timeout_ms)
            records = {tp: OffsetAndTimestamp(*at[:2]) for tp, at in found.items() if at is not None and at.offset >= 0}
            return {
                tp: believed(TopicPartition(*tp), wanted_times[tp], records[tp]) if tp in records else None
                for tp in found
            }

        return self._log_offsets(times_ms, lookup, "looking up offsets of timestamps")

    def end_offsets(self, tps: Collection[TopicPartition], led_only: bool = False) -> dict[TopicPartition, int]:
        """How far each log may be read: to the offset its next record will get, under read_committed to the last stable
        offset. A partition that no longer exists is not in the result. `led_only`: leave out partitions that have no
        leader."""

        def lookup(wanted: Collection[Any], timeout_ms: float) -> Any:
            found = self._consumer._fetcher.offsets_by_times(dict.fromkeys(wanted, OffsetSpec.LATEST), timeout_ms)
            if self._knows_epochs:
                self._leader_epochs |= {tp: at.leader_epoch for tp, at in found.items()}
            return {tp: at.offset for tp, at in found.items()}

        def again(of: Collection[TopicPartition]) -> dict[TopicPartition, int]:
            return self._log_offsets(of, lookup, "looking up end offsets", led_only)

        committed_only = self._consumer._fetcher._isolation_level == IsolationLevel.READ_COMMITTED
        return self._fetched_ends.corrected(again(tps), committed_only, again)

    def without_leader(self, tps: Collection[TopicPartition]) -> set[TopicPartition]:
        """Those of `tps` that exist and have no leader in the last metadata; no I/O."""
        leader_of = self._manager.cluster.leader_for_partition
        return {tp for tp in tps if leader_of(tp) == NO_LEADER}

    def leader_epochs(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Epochs of the leaders that answered the last :meth:`end_offsets`; none before Kafka 2.3. No I/O."""
        known = {tp: self._leader_epochs.get(tp, NO_EPOCH) for tp in tps}
        return {tp: epoch for tp, epoch in known.items() if epoch != NO_EPOCH}

    def epoch_ends(self, asked: Mapping[TopicPartition, EpochAsked]) -> dict[TopicPartition, int | None]:
        """Where the records of leader epochs end in the logs (KIP-320); None where a log's leader does not know. A
        partition that no longer exists, or that has a later leader than was asked, is not in the result."""

        def lookup(wanted: Collection[Any], timeout_ms: float) -> Any:
            of = {TopicPartition(*tp): asked[TopicPartition(*tp)] for tp in wanted}
            try:
                return run_within(self._manager, timeout_ms, lambda: ends_of_epochs(self._manager, of))
            except kafka_errors.KafkaError as error:
                if reaction_to(error, Request.EPOCH_END) not in RETRIED:
                    raise
                raise kafka_errors.KafkaTimeoutError(str(error)) from error

        return self._log_offsets(asked, lookup, "looking up ends of leader epochs")

    def log_ends(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """As :meth:`end_offsets`, with the offset of each log's next record for each kafka.isolation.level."""
        with reading_uncommitted(self._consumer._fetcher):
            return self.end_offsets(tps)

    def _log_offsets(
        self, tps: Collection[TopicPartition], lookup: Callable[..., Any], doing: str, led_only: bool = False
    ) -> dict[TopicPartition, Any]:
        existing = list(tps)
        slice_ms = self._options.connection.request_timeout_ms * LOOKUP_SLICE

        def look_up(left_ms: float) -> dict[TopicPartition, Any]:
            if led_only:
                existing[:] = self._led(existing)
            wanted = [KafkaTopicPartition(*tp) for tp in existing]
            try:
                found = lookup(wanted, timeout_ms=min(left_ms, slice_ms)) if wanted else {}
            except kafka_errors.KafkaTimeoutError as error:
                if left_ms <= slice_ms:
                    raise
                self._calls.run(self._manager.cluster.refresh_metadata)
                existing[:] = self._of_known_topics(existing)
                # Once more, for the others; without time left, this is the error.
                again = kafka_errors.RequestTimedOutError(*error.args)
                again.refusal = refusal_of(error)
                raise again from None
            return {TopicPartition(tp.topic, tp.partition): offset for tp, offset in found.items()}

        return self._in_attempts(f"{doing} of {_named(tps)}", look_up) if tps else {}

    def _led(self, tps: Collection[TopicPartition]) -> list[TopicPartition]:
        """Those of `tps` that have a leader, by new metadata of any broker where some lacked one."""
        without = self.without_leader(tps)
        if without and time.monotonic() - self._leaders_asked_s > LEADERS_HOLD_S:
            manager = self._manager
            self._calls.run(lambda: manager.cluster.refresh_metadata(manager.any_node()))
            self._leaders_asked_s = time.monotonic()
            without = self.without_leader(tps)
        return [tp for tp in tps if tp not in without]

    def _in_attempts(self, doing: str, call: Callable[[float], T]) -> T:
        """As Spark's source: fetchOffset.numRetries attempts, with fetchOffset.retryIntervalMs in between."""

        def attempt() -> T:
            result: T = self._calls.retried(doing, call, self._options.connection.request_timeout_ms, REQUEST_TIMEOUT)
            return result

        for _ in range(self._options.fetching.offset_retries - 1):
            try:
                return attempt()
            except BrokerTimeoutError as error:
                log.warning("%s; asking again", error)
                time.sleep(self._options.fetching.offset_retry_interval_ms / 1000)
        return attempt()


def _named(tps: Collection[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(tps)))
