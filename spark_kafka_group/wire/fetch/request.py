"""Fetch requests as bytes: kafka-python writes one of each shape, and the next ones differ in a few numbers of it.

Writing a request takes kafka-python a quarter of a millisecond and more, and a task sends one for each few MiB.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any
from uuid import UUID

from kafka.protocol.consumer import FetchRequest

from spark_kafka_group.options import PARTITION_BYTES, Fetching
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.fetch.response import IDS_FROM

CORRELATION_ID_AT = 8  # the byte of the correlation id: after the frame's size, the request's kind and its version
EPOCHS_FROM = 9  # the version that first has leader epochs (KIP-320)
LEADERS_ONLY_TO = 10
"""The last version that only leaders answer. Followers answer later ones (KIP-392), also those without a rack, and a
broker that led a partition once would not say that another one leads it now."""
NO_EPOCH = -1
KEPT_SHAPES = 16
UNIQUE = 0x7A5C3B1D  # numbers of a written request that are looked for in its bytes begin with it; nothing else does
UNIQUE_SIZE = UNIQUE + 1  # in place of a partition's bytes

Shape = tuple[tuple[str, int], ...]  # topics, by name or id, and how many partitions of each


class FetchRequests:
    """The Fetch requests of one connection, in `version` of the API."""

    def __init__(self, fetching: Fetching, client_id: str, version: int) -> None:
        self._fetching = fetching
        self._client_id = client_id
        self.version = version
        self._template = lru_cache(KEPT_SHAPES)(self._written)

    def encoded(
        self,
        positions: Mapping[TopicPartition, int],
        correlation_id: int,
        epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
        rack: str = "",
        topic_ids: Mapping[str, str] = MappingProxyType({}),
        sizes: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> bytes | bytearray:
        """A request from each position on, framed; the broker answers in this order. Of leaders of `epochs` only, if
        the version has them; `rack` lets a leader name another replica. Topic ids: of all topics, or none. `sizes`:
        most bytes of partitions, where the user gives none."""
        topics: dict[str, list[tuple[int, int, int, int]]] = {}
        for tp, position in positions.items():
            named = topic_ids[tp.topic] if self.version >= IDS_FROM else tp.topic
            topics.setdefault(named, []).append(
                (tp.partition, epochs.get(tp, NO_EPOCH), position, sizes.get(tp, PARTITION_BYTES))
            )
        template, places = self._template(tuple((topic, len(of)) for topic, of in topics.items()), rack)
        request = bytearray(template)
        struct.pack_into(">i", request, CORRELATION_ID_AT, correlation_id)
        wanted = (of for partitions in topics.values() for of in partitions)
        given = self._fetching.partition_max_bytes
        for (partition, epoch, position, size), (partition_at, position_at, size_at) in zip(
            wanted, places, strict=True
        ):
            struct.pack_into(">i", request, size_at, given or size)
            if self.version >= EPOCHS_FROM:
                struct.pack_into(">iiq", request, partition_at, partition, epoch, position)
            else:
                struct.pack_into(">i", request, partition_at, partition)
                struct.pack_into(">q", request, position_at, position)
        return request

    def _written(self, shape: Shape, rack: str) -> tuple[bytes, tuple[tuple[int, int, int], ...]]:
        """A request, and where each partition's number, position and most bytes are in it."""
        topics: dict[str, list[tuple[int, int]]] = {}
        numbers: list[tuple[int, int]] = []
        for topic, count in shape:
            first = len(numbers)
            topics[topic] = [(first + n, (UNIQUE << 32) + first + n) for n in range(count)]
            numbers += topics[topic]
        written = self._write(topics, rack)
        places = []
        at = 0
        for partition, position in numbers:
            # Partition, leader epoch in later versions, position.
            position_at = written.index(struct.pack(">q", position), at)
            partition_at = position_at - (8 if self.version >= EPOCHS_FROM else 4)
            assert struct.unpack_from(">i", written, partition_at) == (partition,), "a layout this was not written for"
            at = written.index(struct.pack(">i", UNIQUE_SIZE), position_at)
            places.append((partition_at, position_at, at))
        return written, tuple(places)

    def _named(self, topic: str) -> dict[str, Any]:
        return {"topic": topic} if self.version < IDS_FROM else {"topic_id": UUID(topic)}

    def _write(self, topics: Mapping[str, list[tuple[int, int]]], rack: str) -> bytes:
        topic_type = FetchRequest.FetchTopic

        def fetch_partition(partition: int, position: int) -> Any:
            return topic_type.FetchPartition(
                partition=partition,
                current_leader_epoch=NO_EPOCH,
                fetch_offset=position,
                last_fetched_epoch=-1,
                log_start_offset=-1,
                partition_max_bytes=UNIQUE_SIZE,
            )

        request = FetchRequest(
            version=self.version,
            replica_id=-1,
            max_wait_ms=self._fetching.max_wait_ms,
            min_bytes=self._fetching.min_bytes,
            max_bytes=self._fetching.max_bytes,
            isolation_level=int(self._fetching.committed_only),
            session_id=0,
            session_epoch=-1,
            topics=[
                topic_type(partitions=[fetch_partition(*p) for p in of_topic], **self._named(topic))
                for topic, of_topic in topics.items()
            ],
            forgotten_topics_data=[],
            rack_id=rack,
        )
        request.with_header(correlation_id=0, client_id=self._client_id)
        return bytes(request.encode(framed=True, header=True))
