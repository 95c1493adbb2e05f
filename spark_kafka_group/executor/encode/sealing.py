"""The header of a record batch of message format v2, and the end of its making."""

from __future__ import annotations

from struct import Struct

from spark_kafka_group.executor.encode.compressing import compressed
from spark_kafka_group.executor.encode.encoded_batch import NONE, Compression, EncodedBatch
from spark_kafka_group.executor.encode.encoder_contract import HEADER_SIZE

HEADER = Struct(">qiibIhiqqqhii")
_UNCOUNTED = 12  # bytes before those that the length counts
_LEADER_EPOCH, _MAGIC = -1, 2


def sealed(
    data: bytearray, records: int, base_timestamp_ms: int, max_timestamp_ms: int, compression: Compression
) -> EncodedBatch:
    """The record batch of `data`, which has room for a header before the records; it becomes the batch's own."""
    if compression.codec != NONE:
        with memoryview(data) as whole:
            data = bytearray().join((whole[:HEADER_SIZE], *compressed(compression, whole[HEADER_SIZE:])))
    HEADER.pack_into(
        data,
        0,
        0,  # base offset
        len(data) - _UNCOUNTED,
        _LEADER_EPOCH,
        _MAGIC,
        0,  # CRC
        compression.codec,
        records - 1,
        base_timestamp_ms,
        max_timestamp_ms,
        -1,  # producer id
        -1,  # producer epoch
        -1,  # base sequence
        records,
    )
    return EncodedBatch(data, records, max_timestamp_ms, compression)
