"""How records, and where logs begin and end, are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_kafka_group.options import parsing
from spark_kafka_group.options.option import Section, boolean, choice, integer, option

READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"


@dataclass(frozen=True, repr=False)
class Fetching(Section):
    """Sizes and waits of fetch requests: the same on the driver, on executors and in tools."""

    min_bytes: int = option(
        "kafka.fetch.min.bytes", integer(1), "A broker answers a fetch when it has this much.", default=1
    )
    max_bytes: int = option(
        "kafka.fetch.max.bytes", integer(1024),
        "Most bytes of one fetch response. A larger record batch still gets through.",
        default=52_428_800,
    )  # fmt: skip
    max_wait_ms: int = option(
        "kafka.fetch.max.wait.ms",
        integer(0),
        "A broker answers a fetch after this time with the records it has. If no answer has begun 5 s later, the "
        "source asks for the leader and sends the fetch again over another connection.",
        default=500,
    )
    partition_max_bytes: int = option(
        "kafka.max.partition.fetch.bytes", integer(1),
        "Most bytes of one partition in one fetch response. A larger record batch still gets through.",
        default=1_048_576,
    )  # fmt: skip
    isolation_level: str = option(
        "kafka.isolation.level", choice(READ_UNCOMMITTED, READ_COMMITTED),
        "`read_committed` hides records of aborted transactions and reads up to the first open transaction. "
        "`read_uncommitted` shows all records at once. See [Transactions](guarantees.md#transactions).",
        default=READ_UNCOMMITTED,
    )  # fmt: skip
    check_crcs: bool = option(
        "kafka.check.crcs", boolean, "Whether the checksum of every record batch is checked.", default=True
    )
    poll_timeout_ms: int = option(
        "kafkaConsumer.pollTimeoutMs", integer(1),
        "How long an executor waits for the next record before its task fails and Spark runs it again. In a stream an "
        "outage of brokers does not count (see `maxBrokerOutage`); in a batch read it does.",
        default=120_000,
    )  # fmt: skip
    client_rack: str = option(
        "kafka.client.rack", parsing.rack,
        "Rack of the executors: they read from replicas there. With `${env:NAME}` each executor takes the value of "
        "its environment variable. Brokers need [two settings](cluster.md#read-from-the-nearest-replica).",
        default="", shown="none",
    )  # fmt: skip
    offset_retries: int = option(
        "fetchOffset.numRetries", integer(1),
        "How often the driver asks for the offsets of logs, each time for `kafka.request.timeout.ms`, before an error.",
        default=3,
    )  # fmt: skip
    offset_retry_interval_ms: int = option(
        "fetchOffset.retryIntervalMs", integer(0), "How long the driver waits between two attempts.", default=1_000
    )

    def rack(self, environment: Mapping[str, str]) -> str:
        """Rack of a process with this environment; empty if it has none."""
        variable = parsing.FROM_ENVIRONMENT.fullmatch(self.client_rack)
        return environment.get(variable["name"], "").strip() if variable else self.client_rack

    @property
    def committed_only(self) -> bool:
        """Whether records of transactions that are open, or were aborted, are not for this query."""
        return self.isolation_level == READ_COMMITTED
