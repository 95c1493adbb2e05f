"""A scripted cluster that keeps logs, and knows batches that are sent again, as Kafka's brokers do."""

from __future__ import annotations

import struct
import time
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka.protocol.admin import DescribeProducersResponse
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import ProduceRequest, ProduceResponse
from kafka.record.default_records import DefaultRecordBatch

from spark_kafka_group.values.offsets import TopicPartition
from support.scripted import CODES, ScriptedBroker

RECOGNISED = 5
PRODUCER_AT = 43
"""The byte of a record batch where producer id, epoch and base sequence are."""


@dataclass
class Log:
    """Of a partition."""

    values: list[bytes] = field(default_factory=list)
    batches: deque[tuple[int, int, int, int]] = field(default_factory=lambda: deque(maxlen=RECOGNISED))
    """Producer id, first and last sequence number, and base offset."""
    first_offset: int = 0


class ScriptedLogs(ScriptedBroker):
    """As :class:`ScriptedBroker`.

    Attributes
    ----------
    logs
        By partition.
    faults
        What happens to the next requests: an error's name, as answer; ``written, NAME``: the same after writing;
        ``lost``: written, and the connection ends; ``mute``: written, without an answer; ``cut``: the connection ends;
        ``half``: written, and half of the answer comes; ``garbage``: written, and the answer is none; ``throttle``:
        written, with a pause of 300 ms.
    requests
        Partitions and sequence numbers of each request that came.
    most_bytes
        Of a record batch.
    may_describe
        Whether a user may ask what is known of producers.
    forgets
        Whether the producer of a batch that does not begin with sequence 0 is refused where it is not known, as before
        Kafka 2.5.
    metadata_takes_s
        How long a lookup of leaders takes.
    """

    def __init__(self, topics: Mapping[str, int], nodes: int = 1) -> None:
        super().__init__(topics, nodes)
        self.logs: dict[TopicPartition, Log] = defaultdict(Log)
        self.faults: deque[str] = deque()
        self.requests: list[dict[TopicPartition, int]] = []
        self.transactional_ids: set[str | None] = set()
        self.most_bytes = 1 << 30
        self.forgets = False
        self.may_describe = True
        self.metadata_takes_s = 0.0
        self.topic_ids: dict[str, Any] = {}
        self.asked_for_ids = 0
        self.refuses_ids: str | None = None
        self._fault: dict[int, str] = {}

    def values(self, tp: TopicPartition) -> list[bytes]:
        """Of a log."""
        return self.logs[tp].values

    def _InitProducerId(self, message: Any) -> dict[str, Any]:
        if self.refuses_ids:
            return {"error_code": CODES[self.refuses_ids], "producer_id": -1, "producer_epoch": -1}
        self.asked_for_ids += 1
        return {"producer_id": 100 + self.asked_for_ids, "producer_epoch": 0}

    def _Metadata(self, message: Any, topics: Mapping[str, int]) -> dict[str, Any]:
        fields = super()._Metadata(message, topics)
        for topic in fields["topics"]:
            if topic.name in self.topic_ids:
                topic.topic_id = self.topic_ids[topic.name]
        return fields

    def _Produce(self, message: Any) -> dict[str, Any]:
        fault = self.faults.popleft() if self.faults else ""
        self.transactional_ids.add(message.transactional_id)
        asked = {
            TopicPartition(topic.name, part.index): bytes(part.records)
            for topic in message.topic_data
            for part in topic.partition_data
        }
        self.requests.append({tp: _producer(data)[2] for tp, data in asked.items()})
        if fault == "cut":
            raise ConnectionError("scripted")
        name = fault if fault in CODES else ""
        answers = {
            tp: (CODES[name], -1) if name else self._append(self.logs[tp], tp, data) for tp, data in asked.items()
        }
        if fault.startswith("written, "):
            answers = {tp: (CODES[fault.removeprefix("written, ")], -1) for tp in answers}
        if fault == "lost":
            raise ConnectionError("scripted")
        self._fault[id(message)] = fault
        topic_type = ProduceResponse.TopicProduceResponse
        return {
            "throttle_time_ms": 300 if fault == "throttle" else 0,
            "responses": [
                topic_type(
                    name=topic.name,
                    partition_responses=[
                        topic_type.PartitionProduceResponse(
                            index=part.index,
                            error_code=answers[TopicPartition(topic.name, part.index)][0],
                            base_offset=answers[TopicPartition(topic.name, part.index)][1],
                            log_start_offset=self.logs[TopicPartition(topic.name, part.index)].first_offset,
                        )
                        for part in topic.partition_data
                    ],
                )
                for topic in message.topic_data
            ],
        }

    def on_the_wire(self, message: Any, response: bytes) -> tuple[bytes, bool]:
        if isinstance(message, MetadataRequest):
            time.sleep(self.metadata_takes_s)
        fault = self._fault.pop(id(message), "") if isinstance(message, ProduceRequest) else ""
        if fault == "mute":
            return b"", False
        if fault == "half":
            return response[: len(response) // 2], True
        if fault == "garbage":
            return response[:4] + bytes([response[4] ^ 0xFF]) + response[5:], False
        return response, isinstance(message, ProduceRequest) and message.acks == 0 and bool(fault)

    def forget_all_but_the_last(self) -> None:
        """Of the batches that are known again, as a broker that was killed."""
        for log in self.logs.values():
            while len(log.batches) > 1:
                log.batches.popleft()

    def _DescribeProducers(self, message: Any) -> dict[str, Any]:
        topic_type = DescribeProducersResponse.TopicResponse
        partition_type = topic_type.PartitionResponse
        if not self.may_describe:
            refused = partition_type(
                partition_index=message.topics[0].partition_indexes[0],
                error_code=CODES["TOPIC_AUTHORIZATION_FAILED"],
                active_producers=[],
            )
            return {"topics": [topic_type(name=message.topics[0].name, partitions=[refused])]}
        return {
            "topics": [
                topic_type(
                    name=topic.name,
                    partitions=[
                        partition_type(
                            partition_index=index,
                            active_producers=[
                                partition_type.ProducerState(producer_id=known[0], last_sequence=known[2])
                                for known in list(self.logs[TopicPartition(topic.name, index)].batches)[-1:]
                            ],
                        )
                        for index in topic.partition_indexes
                    ],
                )
                for topic in message.topics
            ]
        }

    def _append(self, log: Log, tp: TopicPartition, data: bytes) -> tuple[int, int]:
        if tp.topic not in self.topics:
            return CODES["UNKNOWN_TOPIC_OR_PARTITION"], -1
        if len(data) > self.most_bytes:
            return CODES["MESSAGE_SIZE_TOO_LARGE"], -1
        batch = DefaultRecordBatch(data)
        assert batch.validate_crc()
        values = [record.value for record in batch]
        producer_id, _, first = _producer(data)
        last = (first + len(values) - 1) % (1 << 31)
        offset = log.first_offset + len(log.values)
        if producer_id >= 0:
            of_ours = [known for known in log.batches if known[0] == producer_id]
            for known in of_ours:
                if known[1:3] == (first, last):
                    return 0, known[3]
            if of_ours and (of_ours[-1][2] + 1) % (1 << 31) != first:
                return CODES["OUT_OF_ORDER_SEQUENCE_NUMBER"], -1
            if not of_ours and first and self.forgets:
                return CODES["UNKNOWN_PRODUCER_ID"], -1
            log.batches.append((producer_id, first, last, offset))
        log.values += values
        return 0, offset


def _producer(data: bytes) -> tuple[int, int, int]:
    producer_id, epoch, sequence = struct.unpack_from(">qhi", data, PRODUCER_AT)
    return producer_id, epoch, sequence
