"""How records are sent to brokers: acknowledgements, batches and limits, by the names of Kafka's producer."""

from __future__ import annotations

from dataclasses import dataclass

from spark_kafka_group.option import Section, boolean, choice, integer, option


@dataclass(frozen=True, repr=False)
class Producing(Section):
    """Settings of a task's producer."""

    acks: str = option(
        "kafka.acks", choice("all", "1", "0"),
        "Which replicas have a record before it counts as written: `all` that are in sync, `1`, the leader alone, or "
        "`0`, none that is asked.",
        default="all",
    )  # fmt: skip
    batch_size: int = option(
        "kafka.batch.size", integer(0), "Bytes of records after which a record batch is sent.", default=16_384
    )
    buffer_memory: int = option(
        "kafka.buffer.memory", integer(0),
        "Bytes of record batches that a task keeps until they are acknowledged. Then it waits.",
        default=33_554_432,
    )  # fmt: skip
    compression_type: str = option(
        "kafka.compression.type", choice("none", "gzip", "snappy", "lz4", "zstd"),
        "How record batches are compressed.", default="none",
    )  # fmt: skip
    delivery_timeout_ms: int = option(
        "kafka.delivery.timeout.ms", integer(0),
        "How long a record batch may take to be acknowledged, over all attempts.",
        default=120_000,
    )  # fmt: skip
    enable_idempotence: bool = option(
        "kafka.enable.idempotence", boolean,
        "Whether brokers recognise a record batch that is sent again, and write it once.",
        default=True,
    )  # fmt: skip
    linger_ms: int = option(
        "kafka.linger.ms", integer(0), "How long a record batch that is not full waits for more records.", default=5
    )
    max_block_ms: int = option(
        "kafka.max.block.ms", integer(0),
        "How long a task waits for kafka.buffer.memory while brokers acknowledge nothing.",
        default=60_000,
    )  # fmt: skip
    max_in_flight_requests_per_connection: int = option(
        "kafka.max.in.flight.requests.per.connection", integer(1),
        "Requests that a broker has not answered yet; at most 5 with `kafka.enable.idempotence`.",
        default=5,
    )  # fmt: skip
    max_request_size: int = option(
        "kafka.max.request.size", integer(0),
        "Most bytes of one request, and so of one record that is not compressed.",
        default=1_048_576,
    )  # fmt: skip
