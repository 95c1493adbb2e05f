"""The decision topic: compacted, of one partition, with the last decision of each prefix under the prefix as key.

A decision is one record in a transaction of the driver's own transactional id. So it is there as a whole or not at all,
also when its request has to be repeated, and a driver that was fenced cannot decide.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import kafka.errors as kafka_errors
from kafka.protocol.admin import CreateTopicsRequest

from spark_kafka_group.errors import BrokerError, ProducerFencedError, TransactionError
from spark_kafka_group.values.exactly_once import ProducerIdAndEpoch
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.values.source_offsets import SourceOffsets
from spark_kafka_group.wire.reactions import Request, name_of
from spark_kafka_group.wire.topic_admin import BROKER, integers_of, settings_request
from spark_kafka_group.wire.transactions.offsets_in_transaction import commit_offsets
from spark_kafka_group.wire.transactions.partition_client import PartitionClient
from spark_kafka_group.wire.transactions.transaction_client import STOLEN, TransactionClient
from spark_kafka_group.wire.transactions.transaction_requests import About, check

log = logging.getLogger(__name__)

T = TypeVar("T")

TOPIC = 2  # the resource type
CLEANUP_POLICY = "cleanup.policy"
REPLICAS, IN_SYNC = "transaction.state.log.replication.factor", "transaction.state.log.min.isr"
LONGEST_TIMEOUT = "transaction.max.timeout.ms"
BROKERS_CHOICE = -1
SETTINGS_WITHIN_S = 5.0  # how long settings are asked for
CATCHES_UP_WITHIN_S, PAUSE_S = 5.0, 0.05
"""A leader that has just been elected may not know for a moment how far its records were readable before."""
CREATED_AS = {
    CLEANUP_POLICY: "compact",
    # The segment that is written is not compacted, and a start reads it.
    "segment.bytes": str(8 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
    # A decision that is lost would have its batch be written a second time. Kafka's log of transactions has it, too.
    "unclean.leader.election.enable": "false",
    # A decision of thousands of tasks, each in hundreds of partitions, is longer than brokers take by default.
    "max.message.bytes": str(8 * 1024 * 1024),
}
OF_A_FENCED_PRODUCER = frozenset({"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING"})


class DecisionLog:
    """The decisions of one cluster. Raises BrokerError by everything below."""

    def __init__(self, client: TransactionClient, topic: str) -> None:
        self._client = client
        self.partitions = PartitionClient(client)  # of leaders, for other partitions, too
        self._topic = topic
        self._tp = TopicPartition(topic, 0)

    def longest_timeout_ms(self) -> int | None:
        """The brokers' limit for transactions; None where they do not say it to this user."""
        found = self._settings(LONGEST_TIMEOUT)
        return None if found is None else found[0]

    def prepare(self) -> None:
        """Create the topic, or check that it keeps decisions."""
        if not self.partitions.exists(self._topic):
            self._create()
        policy = self._policy()
        if policy is not None and policy != "compact":
            raise BrokerError(
                f"topic {self._topic} has {CLEANUP_POLICY}={policy}, so decisions in it would be deleted: set it to "
                f"compact, or name another topic with decisionTopic"
            )

    def exists(self) -> bool:
        """Whether there is the topic; an error where this user may not know it."""
        return self.partitions.exists(self._topic)

    def last(self, key: str, start: int = 0) -> tuple[int, bytes] | None:
        """Offset and value of the last record of a key, from an offset on; the key's producer must have none open."""
        found = self._last(lambda record: record.key == key.encode(), start)
        return None if found is None else (found[0], found[2])

    def last_with(self, text: str) -> tuple[str, bytes] | None:
        """Key and value of the last record of all keys whose value has a text; of an open transaction, too."""
        found = self._last(lambda record: text.encode() in bytes(record.value), 0)
        return None if found is None else (found[1].decode(errors="replace"), found[2])

    def _last(self, matches: Callable[[Any], bool], start: int) -> tuple[int, bytes, bytes] | None:
        """Offset, key and value of the last record that matches, from an offset on.

        Isolation levels do not serve here: an open decision of any other prefix would hide this one. But every
        transaction of a key that is looked for is over, so the next marker of its producer says whether a record
        counts. Where a record has none, the topic was compacted, which leaves no record of an aborted transaction.
        """
        end = self.partitions.end_offset(self._tp)
        counting: tuple[int, bytes, bytes] | None = None
        undecided: dict[int, tuple[int, bytes, bytes]] = {}
        position = start or self.partitions.start_offset(self._tp)  # records may have been deleted
        since_s = time.monotonic()
        while position < end:
            fetched = self._fetched(position)
            before = position
            for batch in fetched.batches():
                position = max(position, batch.next_offset)
                if batch.is_control_batch:
                    marked, marker = undecided.pop(batch.producer_id, None), next(iter(batch), None)
                    if marked is not None and not (marker is not None and marker.abort):
                        counting = marked
                else:
                    for record in batch:
                        if record.offset >= start and record.value is not None and matches(record):
                            counting = undecided.get(batch.producer_id, counting)
                            undecided[batch.producer_id] = record.offset, bytes(record.key or b""), bytes(record.value)
            if position > before or fetched.start > before:
                position, since_s = max(position, fetched.start), time.monotonic()
            elif time.monotonic() - since_s >= CATCHES_UP_WITHIN_S:
                position = end  # all that was there was compacted away
            else:
                time.sleep(PAUSE_S)
        return max([*undecided.values(), *([counting] if counting else [])], default=None)

    def _fetched(self, position: int) -> Any:
        try:
            return self.partitions.fetch(self._tp, position, committed=False)
        except BrokerError as error:
            if not isinstance(error.__cause__, kafka_errors.OffsetOutOfRangeError):
                raise
            raise BrokerError(
                f"reading {self._tp}: offset {position} is gone: the topic was made again, or records were deleted "
                f"from it"
            ) from error

    def append(
        self,
        key: str,
        value: bytes,
        producer: ProducerIdAndEpoch,
        sequence: int,
        sources: Iterable[SourceOffsets] = (),
        check: Callable[[int], None] | None = None,
    ) -> int:
        """Write a record in a transaction of the transactional id `key`, and commit; its offset.

        `sequence`: how many records this producer, with this epoch, has written before.
        `sources`: the offsets that the transaction commits, too.
        `check`: called with the time by its coordinator's clock, in milliseconds since the epoch, before anything is
            written. Nothing is if it raises TransactionError.
        Raises ProducerFencedError when the producer was fenced: nothing is written, then. Raises TransactionError when
        the group of a source refuses its member: nothing is written, then. Raises BrokerTimeoutError when brokers did
        not say in time whether it is written.
        """
        with self._client.together():  # or brokers could abort the transaction between two of these requests
            for source in sources:
                commit_offsets(self._client, key, producer, source)
            self._client.add(key, producer, [self._tp])
            if check is not None:
                self._check(key, producer, check)
            doing = f"deciding in {self._tp}"
            try:
                offset = self.partitions.write(self._tp, key.encode(), value, key, producer, sequence)
            except BrokerError as error:
                if error.__cause__ is not None and name_of(type(error.__cause__)) in OF_A_FENCED_PRODUCER:
                    raise ProducerFencedError(f"{doing}: {STOLEN}") from error
                raise
            if not self._client.commit(key, producer):
                raise ProducerFencedError(f"{doing}: {STOLEN}")
            return offset

    def _check(self, key: str, producer: ProducerIdAndEpoch, check: Callable[[int], None]) -> None:
        """Brokers tell no time, but for that at which a transaction has begun: this one has just now."""
        known = self._client.describe([key]).get(key)
        if known is None or not known.open or known.producer != producer:
            return  # its end finds that out
        try:
            check(known.started_ms)
        except TransactionError:
            self._client.give_up(key, producer)
            raise

    # The topic

    def _create(self) -> None:
        doing = f"creating topic {self._topic}"
        found = self._settings(REPLICAS, IN_SYNC)
        replicas, in_sync = (BROKERS_CHOICE, None) if found is None else found
        configs = CREATED_AS | ({} if in_sync is None else {"min.insync.replicas": str(in_sync)})
        topic_type = CreateTopicsRequest.CreatableTopic

        def create(left_ms: float) -> None:
            request = CreateTopicsRequest(
                topics=[topic_type(
                    name=self._topic, num_partitions=1, replication_factor=replicas, assignments=[],
                    configs=[topic_type.CreatableTopicConfig(name=n, value=v) for n, v in configs.items()],
                )],
                timeout_ms=int(left_ms), max_version=6,
            )  # fmt: skip
            response = self._client.run(left_ms, lambda: self._client.manager.send(request, node_id=self._controller()))
            for one in response.topics:
                if kafka_errors.for_code(one.error_code) is not kafka_errors.TopicAlreadyExistsError:
                    check(one.error_code, getattr(one, "error_message", None) or self._topic)
            log.info("created topic %s, with replication factor %s", self._topic, replicas)

        try:
            self._client.retried(doing, create, about=About(Request.CREATE_TOPICS, (self._topic,)))
        except BrokerError as error:
            raise BrokerError(
                f"{error}. Create it yourself, with one partition and {CLEANUP_POLICY}=compact, or name another one "
                f"with decisionTopic"
            ) from error

        def there(left_ms: float) -> None:
            if not self.partitions.exists(self._topic):
                raise kafka_errors.UnknownTopicOrPartitionError(self._topic)

        self._client.retried(doing, there)

    def _controller(self) -> Any:
        """The broker that creates topics."""
        cluster = self._client.manager.cluster
        controller = cluster.controller
        return None if controller is None else controller.node_id

    def _policy(self) -> str | None:
        """The topic's cleanup.policy; None where it is not known."""

        def look_up(left_ms: float) -> str | None:
            request = settings_request(TOPIC, self._topic)
            (result,) = self._client.run(left_ms, lambda: self._client.manager.send(request)).results
            check(result.error_code, self._topic)
            return next((config.value for config in result.configs if config.name == CLEANUP_POLICY), None)

        return self._optional(f"settings of topic {self._topic}", look_up)

    def _optional(self, what: str, look_up: Callable[[float], T]) -> T | None:
        """What nothing depends on but a better error, or a longer timeout; None where brokers do not say it soon."""
        try:
            with self._client.together(SETTINGS_WITHIN_S):
                return self._client.retried(f"looking at {what}", look_up)  # type: ignore[no-any-return]
        except BrokerError as error:
            log.info("transactions: %s are not known: %s", what, error)
            return None

    def _settings(self, *names: str) -> list[int] | None:
        """Settings of a broker; None where they are not known."""
        node = next((broker.node_id for broker in self._client.manager.cluster.brokers()), None)

        def look_up(left_ms: float) -> list[int] | None:
            request = settings_request(BROKER, str(node))
            return integers_of(self._client.run(left_ms, lambda: self._client.manager.send(request, node)), names)

        return self._optional(f"settings of node {node}", look_up)
