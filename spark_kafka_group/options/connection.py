"""How brokers are reached, the options of every client of a cluster, and how records are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from spark_kafka_group.options import parsing
from spark_kafka_group.options.option import Section, boolean, choice, integer, option
from spark_kafka_group.options.security import Secret, Security
from spark_kafka_group.options.security import option_values as security

READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"
PARTITION_BYTES, TASK_BYTES = 1 << 20, 8 << 20
"""Without kafka.max.partition.fetch.bytes: Kafka's default of a partition, and what partitions of a task share."""


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
    partition_max_bytes: int | None = option(
        "kafka.max.partition.fetch.bytes", integer(1),
        "Most bytes of one partition in one fetch response. A larger record batch still gets through. Without it a "
        "task that has much to read from fewer than eight partitions asks for up to 8 MiB of them together.",
        shown="1048576",
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
    def most_of_partition(self) -> int:
        """Most bytes of one partition that a response is asked for."""
        return self.partition_max_bytes or TASK_BYTES

    @property
    def committed_only(self) -> bool:
        """Whether records of transactions that are open, or were aborted, are not for this query."""
        return self.isolation_level == READ_COMMITTED


@dataclass(frozen=True, repr=False)
class Connection(Section):
    """Brokers, sockets and timeouts."""

    bootstrap_servers: str = option(
        "kafka.bootstrap.servers", parsing.servers, "Brokers to ask for the cluster: `host:port`, comma-separated.",
        default="", shown="required", required=True,
    )  # fmt: skip
    client_id: str = option(
        "kafka.client.id",
        parsing.name,
        "The client's name in broker logs and quotas, with `-driver` or `-executor` behind it. The id of a member "
        "without `kafka.group.instance.id` begins with it, as in Kafka.",
        default="groupkafka",
    )
    request_timeout_ms: int = option(
        "kafka.request.timeout.ms", integer(1),
        "How long one request may take, and the first connection. It also bounds stopping. The driver gives up sooner "
        "on requests that brokers answer at once, such as a commit: after a third of this time (a heartbeat: a third "
        "of `kafka.session.timeout.ms`, if that is shorter). Then it looks up the responsible broker again.",
        default=30_000,
    )  # fmt: skip
    default_api_timeout_ms: int = option(
        "kafka.default.api.timeout.ms", integer(1),
        "How long the driver tries to commit, or to look up metadata or offsets, over all requests.",
        default=60_000,
    )  # fmt: skip
    max_broker_outage_ms: int | None = option(
        "maxBrokerOutage", parsing.duration_ms,
        "Streams only. How long brokers may be away, such as `30m`, before a running query ends with an error. "
        "Without it the query waits for them. The driver checks it after `kafka.default.api.timeout.ms`. A task in "
        "the middle of a batch fails after that long, and Spark runs it again as often as `spark.task.maxFailures` "
        "allows; each run waits that long.",
        shown="no limit",
    )  # fmt: skip
    metadata_max_age_ms: int = option(
        "kafka.metadata.max.age.ms", integer(1),
        "How late the query may notice a new topic or partition. Kafka's default is five minutes. Spark's source "
        "looks at each trigger.",
        default=30_000,
    )  # fmt: skip
    partition_metadata_ttl_ms: int | None = option(
        "partition.metadata.cache.ttl.ms", parsing.lifetime_ms,
        "Spark's name for `kafka.metadata.max.age.ms`, since 4.3. Goes before it, unless it is -1.",
        shown="-1",
    )  # fmt: skip
    metadata_recovery_strategy: str = option(
        "kafka.metadata.recovery.strategy", choice("rebootstrap", "none"),
        "Which brokers the query asks if no known broker answers. `rebootstrap`: also the addresses in "
        "`kafka.bootstrap.servers`, so that it finds brokers with new addresses. `none`: only the known brokers.",
        default="rebootstrap",
    )  # fmt: skip
    connections_max_idle_ms: int = option(
        "kafka.connections.max.idle.ms", integer(1),
        "After this time the driver closes a connection that it does not use. Must be above "
        "`kafka.request.timeout.ms`.",
        default=540_000,
        passed_on=True,
    )  # fmt: skip
    retry_backoff_ms: int = option(
        "kafka.retry.backoff.ms", integer(0), "Pause before a request is sent again.", default=100,
        passed_on=True,
    )  # fmt: skip
    reconnect_backoff_ms: int = option(
        "kafka.reconnect.backoff.ms", integer(0),
        "Pause before the next attempt to connect to a broker. It doubles each time.",
        default=50, passed_on=True,
    )  # fmt: skip
    reconnect_backoff_max_ms: int = option(
        "kafka.reconnect.backoff.max.ms",
        integer(0),
        "The longest pause before the next attempt to connect to a broker.",
        default=1_000,
        passed_on=True,
    )
    socket_connection_setup_timeout_ms: int = option(
        "kafka.socket.connection.setup.timeout.ms", integer(1),
        "How long one attempt to connect to a broker may take, with TLS and authentication. It doubles with each "
        "failure. To the group's coordinator it begins with a third of `kafka.session.timeout.ms`, if that is less.",
        default=10_000, passed_on=True,
    )  # fmt: skip
    socket_connection_setup_timeout_max_ms: int = option(
        "kafka.socket.connection.setup.timeout.max.ms", integer(1),
        "The longest time that an attempt to connect may take.", default=30_000, passed_on=True,
    )  # fmt: skip
    receive_buffer_bytes: int | None = option(
        "kafka.receive.buffer.bytes", parsing.buffer_bytes, "Size of the sockets' receive buffer; -1 is the system's.",
        shown="the system's",
    )  # fmt: skip
    send_buffer_bytes: int | None = option(
        "kafka.send.buffer.bytes", parsing.buffer_bytes, "Size of the sockets' send buffer; -1 is the system's.",
        shown="the system's",
    )  # fmt: skip
    client_dns_lookup: str = option(
        "kafka.client.dns.lookup", choice("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
        "Whether the canonical names of its addresses replace a bootstrap server's name.",
        default="use_all_dns_ips", passed_on=True,
    )  # fmt: skip
    proxy_url: Secret | None = option(
        "kafka.proxy.url", security.proxy,
        "A proxy between this client and the brokers: `socks5://host:port` (with `socks5h` the proxy looks up "
        "brokers' names) or `http://host:port` (CONNECT). Write a password before the host, as `user:password@`, "
        "without percent-encoding.",
        shown="none", passed_on=True, secret=True,
    )  # fmt: skip

    def passed_on(self) -> dict[str, Any]:
        """Values that kafka-python takes unchanged, by its own names."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.metadata["passed_on"]}
        return {name: value.text if isinstance(value, Secret) else value for name, value in values.items()}


@dataclass(frozen=True)
class ClientOptions:
    """Whole sections, which all that the driver's clients, executors, the listener and the tools take, so that a new
    option is wherever its section is; reads of other topics, offsets or groups are equal in it."""

    connection: Connection
    security: Security
    fetching: Fetching
