"""One record of each topic: how its records look."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

from spark_kafka_group.errors import CorruptRecordError, GroupKafkaError
from spark_kafka_group.executor import decode
from spark_kafka_group.executor.reading import batch_headers
from spark_kafka_group.executor.reading.batch_headers import Chunk
from spark_kafka_group.executor.reading.fetcher import Fetcher
from spark_kafka_group.explore.decoded import Decoded, decoded
from spark_kafka_group.options import Options
from spark_kafka_group.tools.few_records import ROLE, of_many_partitions
from spark_kafka_group.values.offsets import OffsetRange, TopicPartition
from spark_kafka_group.wire import LARGEST_BATCH, Brokers

CODECS = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_MAGIC_AT, _OLD_ATTRIBUTES_AT, _ATTRIBUTES_AT = 16, 17, 22
_CODEC_BITS = 0b111


@dataclasses.dataclass(frozen=True)
class Sample:
    """How a record of a topic looks. The codec is None where its record batch was not read."""

    compression: str | None = None
    key: Decoded | None = None
    headers: tuple[tuple[str, Decoded], ...] = ()


def samples(options: Options, ranges: Collection[OffsetRange]) -> dict[str, Sample]:
    """One record of each topic that has ranges, where it can be read."""
    careful = of_many_partitions(options)
    try:
        return _samples(careful, ranges)
    except GroupKafkaError:  # of one of them
        return {topic: sample for r in ranges for topic, sample in _sample(careful, r).items()}


def _sample(options: Options, of_topic: OffsetRange) -> dict[str, Sample]:
    try:
        return _samples(options, [of_topic])
    except GroupKafkaError:
        return {}


def _samples(options: Options, ranges: Collection[OffsetRange]) -> dict[str, Sample]:
    twin = decode.load(options.reading.decoder)
    brokers = Brokers(options.client, role=ROLE)
    stalled_after_s = options.connection.request_timeout_ms / 1000
    found: dict[str, Sample] = {}
    try:
        for chunk in Fetcher(brokers, ranges, twin.scan, stalled_after_s, fail_on_data_loss=False).chunks():
            if not chunk.silent and chunk.tp.topic not in found:
                found[chunk.tp.topic] = _of_chunk(twin, chunk)
    finally:
        brokers.close()
    return found


def _of_chunk(twin: decode.Decoder, chunk: Chunk) -> Sample:
    builder = twin.RecordBatchBuilder(
        columns=("key", "headers"), check_crcs=False, unpacked_limit=LARGEST_BATCH, target_bytes=1
    )
    codec = _codec(twin, chunk.tp, chunk.records)
    position, before = 0, -1
    try:
        while not builder.full and position != before:
            before = position
            position = builder.append(
                chunk.tp.topic, chunk.tp.partition, chunk.records, position, chunk.start, chunk.end
            )
    except CorruptRecordError:
        return Sample(codec)
    rows = builder.finish().slice(0, 1).to_pylist() if builder.rows else []
    if not rows:
        return Sample(codec)
    return Sample(codec, decoded(rows[0]["key"]), headers_of(rows[0]))


def _codec(twin: decode.Decoder, tp: TopicPartition, sent: memoryview) -> str | None:
    frame = batch_headers.at(twin.scan, tp, sent, 0)
    if frame is None:
        return None
    attributes = sent[_OLD_ATTRIBUTES_AT if sent[_MAGIC_AT] < 2 else _ATTRIBUTES_AT]
    return CODECS.get(attributes & _CODEC_BITS)


def headers_of(row: dict[str, Any]) -> tuple[tuple[str, Decoded], ...]:
    """A record's headers."""
    return tuple((header["key"], decoded(header["value"])) for header in row["headers"] or ())
