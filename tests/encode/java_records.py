"""Record batches as Kafka's Java clients and brokers read them."""

from __future__ import annotations

from typing import Any

from encoded import Row
from support.java_gateway import JavaProcess


class JavaRecords(JavaProcess):
    """Kafka's classes of records."""

    def __init__(self) -> None:
        super().__init__()
        self._utils = self.kafka.common.utils.Utils
        self._records = self.kafka.common.record.internal.MemoryRecords
        self._partitioner = self.kafka.clients.producer.internals.BuiltInPartitioner

    def partition_of(self, key: bytes, partition_count: int) -> int:
        """The choice of Java's producer."""
        return int(self._partitioner.partitionForKey(key, partition_count))

    def batch_of(self, data: bytes) -> Any:
        """The only record batch of some bytes, after Java's own checks, its CRC among them."""
        batch = self._records.readableRecords(self.java.nio.ByteBuffer.wrap(data)).firstBatch()
        assert batch.sizeInBytes() == len(data)
        batch.ensureValid()
        return batch

    def rows_of(self, batch: Any) -> list[Row]:
        """What a consumer would get."""
        return [self._row(record) for record in batch.iterator()]

    def _row(self, record: Any) -> Row:
        headers = [(header.key(), header.value()) for header in record.headers()]
        return Row(self._bytes(record.key()), self._bytes(record.value()), headers or None)

    def _bytes(self, buffer: Any) -> bytes | None:
        return None if buffer is None else self._utils.toArray(buffer)
