"""One record of each topic: how its records look; and the options of the source that looking needs."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from spark_kafka_group.errors import CorruptRecordError, GroupKafkaError
from spark_kafka_group.executor import decode
from spark_kafka_group.executor.reading import batch_headers
from spark_kafka_group.executor.reading.batch_headers import Chunk
from spark_kafka_group.executor.reading.fetcher import Fetcher
from spark_kafka_group.explore.decoded import Decoded, decoded
from spark_kafka_group.options import ClientOptions, Options, parsed_each
from spark_kafka_group.options.sections import DECLARED
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
        found: dict[str, Sample] = {}
        for of_topic in ranges:
            with contextlib.suppress(GroupKafkaError):
                found |= _samples(careful, [of_topic])
        return found


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
    return tuple((header["key"], decoded(header["value"])) for header in row["headers"] or ())


SUBSCRIPTIONS = {"subscribe", "subscribepattern", "assign"}
ALL_TOPICS = {"subscribePattern": ".*"}
_OF_CLIENTS = {field.name for field in dataclasses.fields(ClientOptions)} | {"values", "registry"}


def to_look_at_topics(options: Mapping[str, Any]) -> Options:
    """Of the topics that `options` subscribe to; of all topics where they name none. Raises OptionError."""
    named = {name: value for name, value in options.items() if name.lower() in SUBSCRIPTIONS}
    return _parsed(options, named or ALL_TOPICS)


def to_look_at(options: Mapping[str, Any], topic: str) -> Options:
    """Of one topic. Raises OptionError."""
    return _parsed(options, {"subscribe": topic})


def _parsed(options: Mapping[str, Any], subscription: Mapping[str, Any]) -> Options:
    """Without the group, which nothing here joins, and without where a query starts. Corrupt records are left out."""
    parsed_each(options)
    kept = {name: value for name, value in options.items() if DECLARED[name.lower()][0] in _OF_CLIENTS}
    return Options.parse({**kept, **subscription, "includeHeaders": "true", "onCorruptRecord": "skip"})
