"""Topics, their logs, and settings of brokers, from outside: nothing joins, commits, or makes a topic."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import kafka.errors as kafka_errors
from kafka.protocol.admin import DescribeConfigsRequest, DescribeLogDirsRequest

from spark_kafka_group.errors import BrokerError
from spark_kafka_group.options import ClientOptions
from spark_kafka_group.options.reading import Subscription
from spark_kafka_group.values.offsets import INT64_MAX, OffsetAndTimestamp, TopicPartition, partitions_by_topic
from spark_kafka_group.wire.admin import BrokerNode, GroupAdmin
from spark_kafka_group.wire.client.connect import run_within, translated
from spark_kafka_group.wire.coordinator_responses import Refusal
from spark_kafka_group.wire.lacking import version_of
from spark_kafka_group.wire.log_times import NEWEST, Found, Lookup, can_find_newest, looked_up
from spark_kafka_group.wire.reactions import Facts, Request, name_of

log = logging.getLogger(__name__)


Leaders = dict[TopicPartition, BrokerNode | None]

DELETED_AFTER_S = 5.0
"""A topic that is missing for this long is deleted: a broker that has just started may not know it yet."""
OFFSETS_AT_ONCE = 2_000
"""A broker answers lookups in turn and unpacks a batch for each: the last answer of a turn must come in time."""


class TopicAdmin(GroupAdmin):
    """As :class:`GroupAdmin`, for whole topics, in one thread. Everything here raises BrokerError."""

    def __init__(self, options: ClientOptions) -> None:
        super().__init__(options)
        self._not_unpacked: set[str] = set()  # topics of which that was said

    def partitions(self, subscription: Subscription) -> Leaders:
        """Existing partitions of `subscription`, and the leader of each; None for a partition without a leader."""
        topics = subscription.named() if subscription.pattern is None else self._all_topics(subscription)
        if not topics:
            return {}
        found = self.leaders(topics)
        denied = self._denied()
        if denied:
            with translated(f"looking up partitions of {', '.join(sorted(topics))}"):
                raise kafka_errors.TopicAuthorizationFailedError(denied)
        return {tp: leader for tp, leader in found.items() if subscription.has(tp)}

    def _all_topics(self, subscription: Subscription) -> set[str]:
        cluster = self._manager.cluster
        cluster.need_all_topic_metadata = True
        self.retried("looking up topics", self._refresh)
        return {topic for topic in cluster.topics() if subscription.includes(topic)}

    def topics(self) -> set[str]:
        """Names of all topics that the user may see, without internal ones."""
        return self._all_topics(Subscription(pattern=""))

    def lookups(self, doing: str, lookups: Sequence[Lookup]) -> list[Found]:
        """The answers, OFFSETS_AT_ONCE at a time; without partitions that brokers do not unpack, after a warning."""
        found: list[Found] = []
        for several in in_turns(lookups, OFFSETS_AT_ONCE):
            found += self._at_once(doing, several)
        without = {tp for asked, of_it in zip(lookups, found, strict=True) for tp in asked if tp not in of_it}
        for topic in sorted({tp.topic for tp in without} - self._not_unpacked):
            self._not_unpacked.add(topic)
            log.warning("%s: %s", doing, not_unpacked({tp for tp in without if tp.topic == topic}))
        return found

    def _at_once(self, doing: str, lookups: Sequence[Lookup]) -> list[Found]:
        topics = {tp.topic for lookup in lookups for tp in lookup}
        missing_since: dict[str, float] = {}

        def once(left_ms: float) -> Any:
            nonlocal missing_since
            try:
                return run_within(self._manager, left_ms, lambda: looked_up(self._manager, lookups))
            except kafka_errors.RetriableError:
                self._refresh(left_ms)
                now = time.monotonic()
                missing_since = {topic: missing_since.get(topic, now) for topic in self._missing(topics)}
                for topic, since in missing_since.items():
                    if now - since >= DELETED_AFTER_S:
                        raise deleted_meanwhile(topic) from None
                raise

        found: list[Found] = self.retried(doing, once)
        return found

    def _missing(self, topics: Collection[str]) -> list[str]:
        """Those that the cluster, when last asked, did not have; no I/O."""
        partitions_of = self._manager.cluster.partitions_for_topic
        return [topic for topic in sorted(topics) if not partitions_of(topic) and topic not in self._denied()]

    def newest(self, tps: Collection[TopicPartition]) -> Found:
        """The record of each log with the greatest timestamp; None where it has none."""
        if can_find_newest(self._manager):
            return self.lookups("looking up the newest records", [dict.fromkeys(tps, NEWEST)])[0]
        return self.newest_searched(tps)

    def newest_searched(self, tps: Collection[TopicPartition]) -> Found:
        """As :meth:`newest`, of brokers that find records by time only: by halving, in at most 63 requests."""
        doing = "looking up the newest records"
        (found,) = self.lookups(doing, [dict.fromkeys(tps, 0)])
        after = {tp: INT64_MAX for tp, record in found.items() if record is not None}
        while after:
            middle = {tp: (_time(found, tp) + end) // 2 for tp, end in after.items()}
            (later,) = self.lookups(doing, [middle])
            after = {tp: end for tp, end in after.items() if tp in later}
            for tp, record in later.items():
                if record is None:
                    after[tp] = middle[tp]
                else:
                    found[tp] = record
            after = {tp: end for tp, end in after.items() if end - _time(found, tp) > 1}
        return found

    def bytes_of(self, leaders: Mapping[TopicPartition, BrokerNode | None]) -> dict[TopicPartition, int] | None:
        """Bytes on the disk of each partition's leader; None where the user lacks Describe, or brokers do not tell."""
        if version_of(self._manager, DescribeLogDirsRequest) < 0:
            return None
        topic_type = DescribeLogDirsRequest.DescribableLogDirTopic
        wanted = [
            topic_type(topic=topic, partitions=[tp.partition for tp in tps])
            for topic, tps in partitions_by_topic(leaders).items()
        ]
        found: dict[TopicPartition, int] = {}
        for node in {leader.id for leader in leaders.values() if leader is not None}:
            of_node = self._directories(node, wanted)
            if of_node is None:
                return None
            led = {tp for tp, leader in leaders.items() if leader is not None and leader.id == node}
            found |= {tp: size for tp, size in of_node if tp in led}
        return found

    def _directories(self, node_id: int, wanted: list[Any]) -> list[tuple[TopicPartition, int]] | None:
        """Sizes of logs on a node; None where the user may not look."""
        doing = f"looking up sizes of logs on node {node_id}"
        request = DescribeLogDirsRequest(topics=wanted)
        response = self.retried(doing, lambda left_ms: self.send(request, node_id))
        # Before version 3 a refusal is an answer without directories.
        if getattr(response, "error_code", 0) or not response.results:
            return None
        return list(_sizes(response.results))

    def _denied(self) -> Collection[str]:
        """Topics that the user may not describe."""
        denied: Collection[str] = self._manager.cluster.unauthorized_topics
        return denied

    def _refresh(self, timeout_ms: float) -> None:
        run_within(self._manager, timeout_ms, self._manager.cluster.refresh_metadata)


def not_unpacked(tps: Collection[TopicPartition]) -> str:
    """Why there is no answer about times in logs."""
    name = name_of(kafka_errors.InvalidRecordError)
    return Refusal(name, Request.LIST_OFFSETS, failed=dict.fromkeys(tps, name)).describe(Facts())


def deleted_meanwhile(topic: str) -> BrokerError:
    """A topic that was there, and is not there any more."""
    return BrokerError(f"topic {topic} was deleted while it was looked at: the cluster does not have it any more")


def in_turns(lookups: Sequence[Lookup], most: int) -> Iterator[list[Lookup]]:
    """Lookups in groups, each with at most `most` partitions in all; a larger lookup is a group of its own."""
    group: list[Lookup] = []
    for lookup in lookups:
        if group and sum(map(len, group)) + len(lookup) > most:
            yield group
            group = []
        group.append(lookup)
    if group:
        yield group


def _time(found: Found, tp: TopicPartition) -> int:
    record = found[tp]
    assert isinstance(record, OffsetAndTimestamp)
    return record.timestamp_ms


def _sizes(directories: Iterable[Any]) -> Iterable[tuple[TopicPartition, int]]:
    for directory in directories:
        for topic in directory.topics:
            for partition in topic.partitions:
                if not partition.is_future_key:
                    yield TopicPartition(topic.name, partition.partition_index), partition.partition_size


BROKER = 4  # the resource type
SESSION_BOUNDS = ("group.min.session.timeout.ms", "group.max.session.timeout.ms")


def session_bounds(node_id: int, send: Callable[[Any], Any]) -> tuple[int, int] | None:
    """Least and greatest session timeout that a broker takes; None where it does not say so. `send`: sends a request to
    that broker and returns its response. Its user needs DescribeConfigs on the cluster."""
    try:
        found = integers_of(send(settings_request(BROKER, str(node_id))), SESSION_BOUNDS)
    except kafka_errors.KafkaError:  # the error is about something else
        return None
    return None if found is None else (found[0], found[1])


def settings_request(kind: int, name: str) -> Any:
    """A question for all settings: brokers that are not Apache's may close the connection where some are named."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    return DescribeConfigsRequest(resources=[resource])


def integers_of(answer: Any, names: Sequence[str]) -> list[int] | None:
    """Whole numbers among the settings in an answer, in the order of their names; None where it has not all."""
    values = {config.name: config.value for result in answer.results for config in result.configs}
    try:
        return [int(values[name]) for name in names]
    except (KeyError, TypeError, ValueError):
        return None
