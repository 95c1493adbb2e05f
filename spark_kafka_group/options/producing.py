"""Options of the sink: how records are sent to brokers, by the names of Kafka's producer, and what of a row is sent."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from spark_kafka_group.options import parsing
from spark_kafka_group.options.connection import Connection
from spark_kafka_group.options.option import Section, boolean, choice, integer, option
from spark_kafka_group.options.schema_registry import SchemaRegistry
from spark_kafka_group.options.security import Security
from spark_kafka_group.options.transacting import Transacting
from spark_kafka_group.options.typed_values import OF_PROTOBUF, TypedValues
from spark_kafka_group.values.offsets import INT64_MAX

MOST_IN_FLIGHT = 5  # the most record batches of a partition that brokers recognise when they are sent again
SYSTEMS_LEVEL = -1  # a level of gzip that leaves the choice to zlib


def acks(raw: str) -> str:
    """`all`, which Kafka also writes as -1, `1` or `0`."""
    return choice("all", "1", "0")("all" if raw.strip() == "-1" else raw)


def gzip_level(raw: str) -> int:
    """A level of zlib's; -1 is its own choice."""
    return SYSTEMS_LEVEL if raw.strip() == str(SYSTEMS_LEVEL) else integer(1, 9)(raw)


@dataclass(frozen=True, repr=False)
class Producing(Section):
    """Settings of a task's producer."""

    acks: str = option(
        "kafka.acks", acks,
        "Which replicas have a record before it counts as written: `all` in-sync ones (also `-1`), or `1`, the leader "
        "alone. With `0` brokers are not asked: rows may be lost without an error.",
        default="all",
    )  # fmt: skip
    batch_size: int = option(
        "kafka.batch.size", integer(0),
        "Bytes of records, before they are compressed, after which a record batch is sent. A larger record gets a "
        "record batch of its own. Kafka's default is 16384. The default here is at most `kafka.buffer.memory`.",
        default=524_288,
    )  # fmt: skip
    buffer_memory: int = option(
        "kafka.buffer.memory", integer(0, INT64_MAX),
        "Most bytes of record batches that a task keeps until they are acknowledged. With more it waits.",
        default=33_554_432,
    )  # fmt: skip
    compression_type: str = option(
        "kafka.compression.type", choice("none", "gzip", "snappy", "lz4", "zstd"),
        "How record batches are compressed: `none`, `gzip`, `snappy`, `lz4` or `zstd`.", default="none",
    )  # fmt: skip
    compression_gzip_level: int = option(
        "kafka.compression.gzip.level", gzip_level, "1 to 9, or -1 for zlib's own choice.", default=SYSTEMS_LEVEL
    )
    compression_lz4_level: int = option(
        "kafka.compression.lz4.level", integer(1, 17), "1 to 17, the smallest result.", default=9
    )
    compression_zstd_level: int = option(
        "kafka.compression.zstd.level", integer(-131_072, 22), "-131072, the quickest, to 22.", default=3
    )
    delivery_timeout_ms: int = option(
        "kafka.delivery.timeout.ms", integer(0),
        "How long a record batch may take to be acknowledged, over all attempts. If brokers are away for longer, the "
        "task fails, and Spark runs it again. Must not be below the sum of `kafka.linger.ms` and "
        "`kafka.request.timeout.ms`. The default is at least that sum.",
        default=120_000,
    )  # fmt: skip
    enable_idempotence: bool = option(
        "kafka.enable.idempotence", boolean,
        "Whether brokers recognise a record batch that a task sends again, and write it once. The default is "
        "`false` if `kafka.acks` is not `all`, or `kafka.max.in.flight.requests.per.connection` is above 5.",
        default=True,
    )  # fmt: skip
    linger_ms: int = option(
        "kafka.linger.ms", integer(0, INT64_MAX),
        "How long a record batch that is not full waits for more records while Spark hands rows over. The default is "
        "lower if `kafka.delivery.timeout.ms` leaves less time.",
        default=100,
    )  # fmt: skip
    max_block_ms: int = option(
        "kafka.max.block.ms", integer(0, INT64_MAX),
        "How long a task waits for a topic's metadata, and for room in `kafka.buffer.memory` while brokers "
        "acknowledge nothing. The check before a batch write waits as long, but at most 10 s.",
        default=60_000,
    )  # fmt: skip
    max_in_flight_requests_per_connection: int = option(
        "kafka.max.in.flight.requests.per.connection", integer(1),
        "Most requests that a broker has not answered yet; at most 5 with `kafka.enable.idempotence`.",
        default=5,
    )  # fmt: skip
    max_request_size: int = option(
        "kafka.max.request.size", integer(1),
        "Most bytes of one request, and so of one uncompressed record.",
        default=1_048_576,
    )  # fmt: skip
    ignore_keys: bool = option(
        "kafka.partitioner.ignore.keys", boolean,
        "Whether rows with a key are spread over partitions like rows without a key.",
        default=False,
    )  # fmt: skip


AT_LEAST_ONCE, EXACTLY_ONCE = "at-least-once", "exactly-once"


@dataclass(frozen=True, repr=False)
class Writing(Section):
    """Where rows go, and how often each may arrive."""

    topic: str | None = option(
        "topic", parsing.topic,
        "The topic to write to. Takes precedence over the column `topic`. Required without that column.",
        shown="the column `topic`",
    )  # fmt: skip
    include_headers: bool = option("includeHeaders", boolean, "Whether the column `headers` is written.", default=True)
    delivery_guarantee: str = option(
        "deliveryGuarantee", choice(AT_LEAST_ONCE, EXACTLY_ONCE),
        "`at-least-once`, or `exactly-once`: readers of committed records get each row once. Needs "
        "`kafka.transactional.id`.",
        default=AT_LEAST_ONCE,
    )  # fmt: skip
    encoder: str = option(
        "encoder", choice("auto", "c", "python"),
        "`c` is compiled. `python` writes the same records slowly. `auto` takes `c` if it was built.",
        default="auto",
    )  # fmt: skip
    auto_register: bool = option(
        "schema.registry.auto.register", boolean,
        "Whether the schema that values are written with is registered under its subject: `valueSchema`, or for `avro` "
        "and `protobuf` one that is made of the column's type. Else the subject must have it.",
        default=False,
    )  # fmt: skip


SINK_SECTIONS: dict[str, type[Section]] = {
    "writing": Writing, "producing": Producing, "transacting": Transacting, "values": TypedValues,
    "registry": SchemaRegistry, "connection": Connection, "security": Security,
}  # fmt: skip
OF_READING_ONLY = frozenset({
    "maxBrokerOutage", "kafka.default.api.timeout.ms", "partition.metadata.cache.ttl.ms", "onMalformedValue",
    *OF_PROTOBUF,
})  # fmt: skip
"""Options of shared sections that mean nothing to a sink: a task waits by the settings of Kafka's producer."""


def _declared() -> dict[str, tuple[str, dataclasses.Field[Any]]]:
    fields = [
        (name, field)
        for name, section in SINK_SECTIONS.items()
        for field in dataclasses.fields(section)  # type: ignore[arg-type]
        if field.metadata["name"] not in OF_READING_ONLY
    ]
    fields.sort(key=lambda declared: not declared[1].metadata["required"])
    return {field.metadata["name"].lower(): (name, field) for name, field in fields}


SINK_DECLARED = _declared()
"""Section and field of each option of the sink, by its name in lower case; those that are required first."""
