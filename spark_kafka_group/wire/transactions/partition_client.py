"""Single requests to the leaders of partitions: the end of a log, some records, and one record to write."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import kafka.errors as kafka_errors
from kafka.protocol.consumer import FetchRequest, IsolationLevel, ListOffsetsRequest, OffsetSpec
from kafka.protocol.producer import ProduceRequest
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.structs import TopicPartition as KafkaTopicPartition

from spark_kafka_group.errors import BrokerError
from spark_kafka_group.values.exactly_once import ProducerIdAndEpoch
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.client.connect import ms_until
from spark_kafka_group.wire.reactions import Request
from spark_kafka_group.wire.transactions.transaction_client import TransactionClient
from spark_kafka_group.wire.transactions.transaction_requests import About

FETCH, PRODUCE = 11, 9
"""The latest versions that are sent: later Fetches name topics by id, later Produces add partitions to transactions."""
FETCH_FROM = 4  # the first version that knows transactions
FETCH_BYTES = 1024 * 1024
FETCH_WAIT_MS = 100
GZIP = 1
DENIED = "TOPIC_AUTHORIZATION_FAILED"
ALL_IN_SYNC = -1


@dataclass(frozen=True)
class Fetched:
    """What a leader has at an offset."""

    records: bytes  # record batches as they lie in the log
    start: int
    stable: int  # the last stable offset: transactions below it are over
    # Producer id and first offset of transactions that were aborted, and have records here
    aborted: tuple[tuple[int, int], ...]

    def batches(self) -> Iterator[Any]:
        """kafka-python's record batches."""
        found = MemoryRecords(self.records)
        while found.has_next():
            yield found.next_batch()


class PartitionClient:
    """Asks leaders, over the connections of a client of coordinators."""

    def __init__(self, client: TransactionClient) -> None:
        self._client = client
        self._topics: set[str] = set()

    def exists(self, topic: str) -> bool:
        """Whether there is a topic. Raises BrokerError when this user may not know it."""
        self._refresh(topic)
        cluster = self._client.manager.cluster
        if topic in cluster.unauthorized_topics:
            raise BrokerError(f"looking up topic {topic}: {DENIED}: {About(None, (topic,)).advice(DENIED)}")
        return bool(cluster.partitions_for_topic(topic))

    def has(self, tp: TopicPartition) -> bool:
        """Whether there is a partition that this user may see."""
        self._refresh(tp.topic)
        return tp.partition in (self._client.manager.cluster.partitions_for_topic(tp.topic) or ())

    def end_offset(self, tp: TopicPartition) -> int:
        """The offset after the last record that all replicas have."""
        return self._offset(tp, OffsetSpec.LATEST, "end")

    def start_offset(self, tp: TopicPartition) -> int:
        """The first offset of a log."""
        return self._offset(tp, OffsetSpec.EARLIEST, "start")

    def _offset(self, tp: TopicPartition, of: OffsetSpec, named: str) -> int:
        topic_type = ListOffsetsRequest.ListOffsetsTopic
        partition = topic_type.ListOffsetsPartition(partition_index=tp.partition, timestamp=int(of))

        def look_up(left_ms: float) -> int:
            request = ListOffsetsRequest(
                replica_id=-1, isolation_level=int(IsolationLevel.READ_UNCOMMITTED),
                topics=[topic_type(name=tp.topic, partitions=[partition])], max_version=7,
            )  # fmt: skip
            found = self._sent(request, tp, left_ms).topics[0].partitions[0]
            _check(found.error_code, tp)
            return int(found.offset)

        return int(self._at_leader(f"looking up the {named} of {tp}", tp, look_up))

    def fetch(self, tp: TopicPartition, offset: int, committed: bool) -> Fetched:
        """Records from an offset on; with `committed`, only below the last stable offset. Raises BrokerError caused by
        kafka-python's OffsetOutOfRangeError, where the log has no such offset."""
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        topic_type = FetchRequest.FetchTopic
        partition = topic_type.FetchPartition(
            partition=tp.partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
        )

        def fetch_once(left_ms: float) -> Fetched:
            request = FetchRequest(
                max_wait_ms=FETCH_WAIT_MS, min_bytes=1, max_bytes=FETCH_BYTES, isolation_level=int(level),
                topics=[topic_type(topic=tp.topic, partitions=[partition])], forgotten_topics_data=[],
                min_version=FETCH_FROM, max_version=FETCH,
            )  # fmt: skip
            response = self._sent(request, tp, left_ms)
            _check(getattr(response, "error_code", 0) or 0, tp)
            if not response.responses:  # so a broker says that the user's quota is used up, and answers nothing
                raise kafka_errors.ThrottlingQuotaExceededError(f"{tp}")
            found = response.responses[0].partitions[0]
            _check(found.error_code, tp)
            aborted = tuple((one.producer_id, one.first_offset) for one in found.aborted_transactions or ())
            start = found.log_start_offset
            return Fetched(
                bytes(found.records or b""), -1 if start is None else start, found.last_stable_offset, aborted
            )

        return self._at_leader(f"reading {tp}", tp, fetch_once, asks=Request.FETCH)  # type: ignore[no-any-return]

    def write(
        self,
        tp: TopicPartition,
        key: bytes,
        value: bytes,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        sequence: int,
    ) -> int:
        """Write one record of a transaction, once however often it is sent; its offset."""
        records = _batch(key, value, producer, sequence)

        def write_once(left_ms: float) -> int:
            topic_type = ProduceRequest.TopicProduceData
            partition = topic_type.PartitionProduceData(index=tp.partition, records=records)
            request = ProduceRequest(
                transactional_id=transactional_id, acks=ALL_IN_SYNC, timeout_ms=int(left_ms),
                topic_data=[topic_type(name=tp.topic, partition_data=[partition])], max_version=PRODUCE,
            )  # fmt: skip
            found = self._sent(request, tp, left_ms).responses[0].partition_responses[0]
            _check(found.error_code, tp)
            return int(found.base_offset)

        return int(self._at_leader(f"writing to {tp}", tp, write_once, Request.PRODUCE, Request.PRODUCE))

    def _at_leader(
        self,
        doing: str,
        tp: TopicPartition,
        call: Callable[[float], Any],
        request: Request | None = None,
        asks: Request | None = None,
    ) -> Any:
        """`request` says what is repeated, `asks` which right it needs."""

        def attempt(left_ms: float) -> Any:
            try:
                return call(left_ms)
            except kafka_errors.ThrottlingQuotaExceededError:
                raise
            except kafka_errors.KafkaError:
                self._topics.discard(tp.topic)  # the next attempt looks its leader up
                raise

        return self._client.retried(doing, attempt, request, About(asks, (tp.topic,)))

    def _sent(self, request: Any, tp: TopicPartition, left_ms: float) -> Any:
        """A response of the partition's leader."""
        manager, deadline = self._client.manager, time.monotonic() + left_ms / 1000
        if tp.topic not in self._topics:
            self._refreshed(tp.topic, left_ms)
        leader = manager.cluster.leader_for_partition(KafkaTopicPartition(*tp))
        if leader in (None, -1):
            raise kafka_errors.LeaderNotAvailableError(f"{tp}")
        return self._client.send(request, leader, ms_until(deadline))

    def _refresh(self, topic: str) -> None:
        self._client.retried(f"looking up {topic}", lambda left_ms: self._refreshed(topic, left_ms))

    def _refreshed(self, topic: str, left_ms: float) -> None:
        """One attempt; raises kafka-python's errors."""
        cluster = self._client.manager.cluster
        self._topics.add(topic)
        cluster.set_topics(sorted(self._topics))
        self._client.run(left_ms, cluster.refresh_metadata)


def _batch(key: bytes, value: bytes, producer: ProducerIdAndEpoch, sequence: int) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=GZIP, is_transactional=True, producer_id=producer.producer_id,
        producer_epoch=producer.epoch, base_sequence=sequence, batch_size=len(key) + len(value) + 1024,
    )  # fmt: skip
    builder.append(0, int(time.time() * 1000), key, value, [])
    return bytes(builder.build())


def _check(error_code: int, tp: TopicPartition) -> None:
    if error_code:
        raise kafka_errors.for_code(error_code)(f"{tp}")
