"""Every option of the source, once: name, type, default and what it does.

Names are Spark's where Spark's kafka source has the option, and ``kafka.`` plus the consumer's where Kafka has it.
They are case-insensitive, as in Spark. All are checked when ``load()`` is called, before any network call.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_kafka_group import plugins
from spark_kafka_group.destinations import delay_of, retry_topic
from spark_kafka_group.errors import OptionError
from spark_kafka_group.json_text import listed, shortened
from spark_kafka_group.offsets import EARLIEST, LATEST, TopicPartition
from spark_kafka_group.options import parsing
from spark_kafka_group.options.bounds import Bound
from spark_kafka_group.options.subscription import Subscription
from spark_kafka_group.options.unsupported import why_unsupported
from spark_kafka_group.security import Secret, Security, check
from spark_kafka_group.security import parsing as security
from spark_kafka_group.security.settings import PROTOCOLS, STORE_TYPES, TLS_PROTOCOLS

if TYPE_CHECKING:
    from spark_kafka_group.security.jaas import LoginModule

READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"
FAIL, SKIP, DEAD_LETTER = "fail", "skip", "deadLetter"
STRATEGIES = ("range", "roundrobin", "sticky", "cooperative-sticky")
LISTENER_METHODS = ("on_partitions_revoked", "on_partitions_assigned", "on_partitions_lost")
INTERCEPTOR_METHODS = ("on_consume", "on_commit")
JAVA_STRATEGIES = {
    f"org.apache.kafka.clients.consumer.{java}Assignor": name
    for java, name in zip(("Range", "RoundRobin", "Sticky", "CooperativeSticky"), STRATEGIES, strict=True)
}
"""Java's class names, as its consumers' configurations have them, to the names in the group protocol."""

LONGEST_TOPIC = 249
LONGEST_NAME = 200
"""Of what may be an option, misspelt."""
LONGEST_TEXT = 4 * 1024 * 1024
"""Of an option, in characters."""

log = logging.getLogger(__name__)


def _option(
    name: str,
    parse: Callable[[str], Any],
    doc: str,
    default: Any = None,
    shown: str | None = None,
    required: bool = False,
    passed_on: bool = False,
    secret: bool = False,
) -> Any:
    """One option as a dataclass field.

    `shown` is the default as the documentation prints it; one that is `passed_on` means to kafka-python, which has it
    under the field's name, what it says; the value of a `secret` one is in no error.
    """
    metadata = {
        "name": name, "parse": parse, "doc": doc, "required": required, "shown": shown, "passed_on": passed_on,
        "secret": secret,
    }  # fmt: skip
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, repr=False)
class Options:
    """The options of one query, checked. Built by :meth:`parse`."""

    bootstrap_servers: str = _option(
        "kafka.bootstrap.servers", parsing.servers, "Brokers to ask for the cluster: `host:port`, comma-separated.",
        default="", shown="required", required=True,
    )  # fmt: skip
    group_id: str | None = _option(
        "kafka.group.id", parsing.name,
        "The consumer group the query is a member of. A stream without it makes a group of its own, "
        "named after an id kept in its checkpoint; a batch read without it belongs to no group.",
        shown="`<groupIdPrefix>-<reader id>` on a stream",
    )  # fmt: skip
    group_id_prefix: str = _option(
        "groupIdPrefix", parsing.name,
        "How the group of a stream without `kafka.group.id` begins; an id kept in the checkpoint follows.",
        default="spark-groupkafka",
    )  # fmt: skip
    topics: tuple[str, ...] = _option(
        "subscribe", parsing.topics, "Topics to read, comma-separated.",
        default=(), shown="one of these three",
    )  # fmt: skip
    topic_pattern: str | None = _option(
        "subscribePattern", parsing.pattern,
        "A regular expression: topics in whose name it is found are read, also those made later; internal ones never. "
        "Begin with `^` and end with `$` to match whole names.",
        shown="one of these three",
    )  # fmt: skip
    assigned: frozenset[TopicPartition] = _option(
        "assign", parsing.partitions,
        'Partitions, `{"orders": [0, 1]}`: read without membership, so nobody shares them and nothing rebalances; '
        "offsets are committed all the same, to a group that nobody else may use.",
        default=frozenset(), shown="one of these three",
    )  # fmt: skip
    retry_delays_ms: tuple[int, ...] = _option(
        "retryTopics", parsing.delays_ms,
        "Streams only. Delays in milliseconds, such as `60000,600000`: with each topic its retry topics are read, "
        "`orders-retry-60000` and `orders-retry-600000`, no record of them before its timestamp is that long ago. See "
        "[Retry topics](#retry-topics).",
        default=(), shown="none",
    )  # fmt: skip
    starting_timestamp: Bound | None = _option(
        "startingTimestamp", parsing.timestamp("startingTimestamp"),
        "Where a new query starts: at the first record with this timestamp or a later one, in milliseconds since the "
        "epoch. Goes before `startingOffsetsByTimestamp`, and that before `startingOffsets`.",
        shown="none",
    )  # fmt: skip
    starting_offsets_by_timestamp: Bound | None = _option(
        "startingOffsetsByTimestamp", parsing.timestamps("startingOffsetsByTimestamp"),
        'The same with a timestamp for each partition, `{"orders": {"0": 1700000000000, "1": 1700000060000}}`, or for '
        'each topic, `{"orders": 1700000000000}`.',
        shown="none",
    )  # fmt: skip
    starting_by_timestamp_strategy: str = _option(
        "startingOffsetsByTimestampStrategy", parsing.choice("error", "latest"),
        "What to do where no record is as new as the timestamp: `error`, or start at `latest`.", default="error",
    )  # fmt: skip
    starting_offsets: Bound | None = _option(
        "startingOffsets", parsing.offsets("startingOffsets", parsing.GROUP, "earliest", "latest"),
        "Where a new query starts: `group` (what the group has committed, else `kafka.auto.offset.reset`), `earliest`, "
        '`latest`, or JSON per partition or topic, `{"orders": {"0": 23, "1": -2}, "bills": "latest"}` (-2 earliest, '
        "-1 latest). A query with a checkpoint goes on from there.",
        shown="`group`; `earliest` on a batch read without `kafka.group.id`",
    )  # fmt: skip
    ending_timestamp: Bound | None = _option(
        "endingTimestamp", parsing.timestamp("endingTimestamp"),
        "Where reading ends, exclusive: at the first record with this timestamp or a later one. Goes before "
        "`endingOffsetsByTimestamp`, and that before `endingOffsets`. A batch read without such a record ends at "
        "latest; a stream goes on until one comes.",
        shown="none",
    )  # fmt: skip
    ending_offsets_by_timestamp: Bound | None = _option(
        "endingOffsetsByTimestamp", parsing.timestamps("endingOffsetsByTimestamp"),
        "The same with a timestamp for each partition or topic.", shown="none",
    )  # fmt: skip
    ending_offsets: Bound | None = _option(
        "endingOffsets",
        parsing.offsets("endingOffsets", "latest", refused={EARLIEST: "reading cannot end at earliest (-2)"}),
        "Where reading ends, exclusive: `latest` or JSON per partition or topic (-1 latest). A stream makes no "
        "progress from there on, and with `trigger(availableNow=True)` ends; `latest` is what there is when it starts.",
        shown="`latest` on a batch read; a stream has no end",
    )  # fmt: skip
    auto_offset_reset: str | None = _option(
        "kafka.auto.offset.reset", parsing.choice("latest", "earliest", "none"),
        "Where `startingOffsets=group` starts a partition for which the group has committed nothing; `none` is an "
        "error that names the partitions.",
        shown="`latest` on a stream, `earliest` on a batch read",
    )  # fmt: skip
    on_offset_conflict: str = _option(
        "onOffsetConflict", parsing.choice("auto", "checkpoint", "group", "fail"),
        "Streams only. When a query starts again and its checkpoint and the group's committed offset differ: `auto` "
        "(who wrote the group's last decides, see Guarantees), `checkpoint`, `group`, or `fail`.",
        default="auto",
    )  # fmt: skip
    paused: frozenset[TopicPartition] = _option(
        "pausePartitions", parsing.partitions,
        'Streams only. Partitions that are not read for now, `{"orders": [0, 1]}`; their positions are kept.',
        default=frozenset(), shown="none",
    )  # fmt: skip
    pause_file: str | None = _option(
        "pauseFile", parsing.writable_file,
        "Streams only. A file on the driver with JSON as in `pausePartitions`, looked at before every micro-batch: "
        "change it to pause and resume while the query runs; without the file nothing is paused.",
        shown="none",
    )  # fmt: skip
    max_offsets_per_trigger: int | None = _option(
        "maxOffsetsPerTrigger", parsing.integer(1, 2**63 - 1),
        "Most offsets in one micro-batch, shared among partitions in proportion to their backlog; none starves.",
        shown="no limit",
    )  # fmt: skip
    min_offsets_per_trigger: int | None = _option(
        "minOffsetsPerTrigger", parsing.integer(1, 2**63 - 1),
        "A micro-batch waits until there are so many offsets, at most `maxTriggerDelay` after the one before. "
        "`trigger(availableNow=True)` reads the rest whatever it is.",
        shown="none",
    )  # fmt: skip
    max_trigger_delay_ms: int = _option(
        "maxTriggerDelay", parsing.duration_ms,
        "How long `minOffsetsPerTrigger` may hold data back, such as `200ms`, `30s` or `15m`.", default=900_000,
        shown="`15m`",
    )  # fmt: skip
    fail_on_data_loss: bool = _option(
        "failOnDataLoss", parsing.boolean,
        "Whether a query stops where records it has not read are gone (retention, a topic that was deleted). With "
        "`false` it warns, counts in the progress what is gone before tasks start, and goes on with what is there.",
        default=True,
    )  # fmt: skip
    on_corrupt_record: str = _option(
        "onCorruptRecord", parsing.choice(FAIL, SKIP, DEAD_LETTER),
        "What to do about records that cannot be read (a wrong checksum, an impossible length, a codec that fails): "
        "`fail`, `skip` (leave them out and say so in the executor's log), or `deadLetter` (that, and send their bytes "
        "to `<topic>-dlt`, which must exist). See Records that cannot be read.",
        default=FAIL,
    )  # fmt: skip
    include_headers: bool = _option("includeHeaders", parsing.boolean, "Adds the `headers` column.", default=False)
    generation: str = _option(
        "generation", parsing.choice("auto", "batch", "stable"),
        "When a micro-batch with data starts a new generation of the group: `auto` (when the query is alone in the "
        "group), `batch` (always, as leader), `stable` (only when Kafka needs one).",
        default="auto",
    )  # fmt: skip
    assignment_strategy: tuple[str, ...] = _option(
        "kafka.partition.assignment.strategy", parsing.names,
        "How partitions are dealt among the members, most preferred first: `range`, `roundrobin`, `sticky`, "
        "`cooperative-sticky` (or Java's class names), or `module:Class` of your own. All members need one in common.",
        default=("range", "cooperative-sticky"), shown="`range,cooperative-sticky`, as Java's consumer has it",
    )  # fmt: skip
    rebalance_listener: str | None = _option(
        "rebalanceListener", parsing.text,
        "Streams only. `module:Class` with `on_partitions_revoked`, `on_partitions_assigned` and `on_partitions_lost`, "
        "called on the driver once per rebalance.",
        shown="none",
    )  # fmt: skip
    interceptors: tuple[str, ...] = _option(
        "interceptors", parsing.names,
        "`module:Class`, comma-separated, with `on_consume(record_batch)` (on executors; what it returns goes on to "
        "Spark) or `on_commit(offsets, error)` (on the driver, after each commit).",
        default=(), shown="none",
    )  # fmt: skip
    min_partitions: int | None = _option(
        "minPartitions", parsing.integer(1),
        "At least so many tasks: large ranges of offsets are cut into equal parts, as Spark's own source does. "
        "Without it `recordsPerTask` decides.",
        shown="none",
    )  # fmt: skip
    max_records_per_partition: int | None = _option(
        "maxRecordsPerPartition", parsing.integer(1, 2**63 - 1),
        "Most offsets in one task: larger ranges are cut into equal parts, as Spark's own source does.",
        shown="none",
    )  # fmt: skip
    records_per_task: int = _option(
        "recordsPerTask", parsing.integer(1, 2**63 - 1),
        "Offsets worth a Spark task of their own. A small micro-batch is read by one task, as starting each costs as "
        "much as reading many records.",
        default=200_000,
    )  # fmt: skip
    max_tasks: int | None = _option(
        "maxTasks", parsing.integer(1), "Most tasks of one micro-batch or batch read.", shown="number of partitions"
    )
    push_down_predicate: bool = _option(
        "pushDownPredicate", parsing.boolean,
        "Batch reads only. Whether filters on `topic`, `partition`, `offset` and `timestamp` narrow what is read; see "
        "Exploring for what Spark needs for that, and for `read_where`, which does it by itself.",
        default=False,
    )  # fmt: skip
    decoder: str = _option(
        "decoder", parsing.choice("auto", "c", "python"),
        "`c` is compiled, `python` gives the same rows slowly, `auto` takes `c` where it was built.",
        default="auto",
    )  # fmt: skip
    client_id: str = _option(
        "kafka.client.id",
        parsing.name,
        "Name in broker logs and quotas; `-driver` or `-executor` is added.",
        default="groupkafka",
    )
    group_instance_id: str | None = _option(
        "kafka.group.instance.id", parsing.instance_id,
        "Static membership under a name of your own. Such a member does not leave the group when the query stops.",
        shown="derived from an id in the checkpoint",
    )  # fmt: skip
    session_timeout_ms: int = _option(
        "kafka.session.timeout.ms", parsing.integer(1),
        "How long the group waits for a driver that went silent. The broker sets bounds.", default=45_000,
    )  # fmt: skip
    heartbeat_interval_ms: int = _option(
        "kafka.heartbeat.interval.ms",
        parsing.integer(1),
        "How often the driver tells the group it is alive.",
        default=3_000,
    )
    max_poll_interval_ms: int = _option(
        "kafka.max.poll.interval.ms", parsing.integer(1),
        "The rebalance timeout: how long the rest of the group waits for a running micro-batch to end and be "
        "committed. A longer micro-batch is fine as long as nobody joins or leaves.",
        default=300_000,
    )  # fmt: skip
    request_timeout_ms: int = _option(
        "kafka.request.timeout.ms", parsing.integer(1),
        "How long one request may take, and the first connection; also bounds stopping. A request that a broker "
        "answers at once, such as a heartbeat or a commit, is given up after a third of that (after 10 s unless "
        "changed, a heartbeat also after a third of `kafka.session.timeout.ms`), and sent again where the cluster has "
        "gone on.",
        default=30_000,
    )  # fmt: skip
    default_api_timeout_ms: int = _option(
        "kafka.default.api.timeout.ms", parsing.integer(1),
        "How long the driver tries to commit, or to look something up, over all requests that takes.", default=60_000,
    )  # fmt: skip
    max_broker_outage_ms: int | None = _option(
        "maxBrokerOutage", parsing.duration_ms,
        "Streams only. How long brokers may be away, such as `30m`, before a running query ends with an error; without "
        "it the query waits for them. Looked at once `kafka.default.api.timeout.ms` is over, and by tasks that wait in "
        "the middle of a batch after every attempt. Such a task fails, and Spark runs it again as often as "
        "`spark.task.maxFailures` says; each run waits for so long.",
        shown="no limit",
    )  # fmt: skip
    metadata_max_age_ms: int = _option(
        "kafka.metadata.max.age.ms", parsing.integer(1),
        "How late a new topic or partition may be noticed. Kafka's five minutes is long for who knows Spark's source.",
        default=30_000,
    )  # fmt: skip
    fetch_offset_num_retries: int = _option(
        "fetchOffset.numRetries", parsing.integer(1),
        "How often the driver asks for the offsets of logs, each time for `kafka.request.timeout.ms`, before an error.",
        default=3,
    )  # fmt: skip
    fetch_offset_retry_interval_ms: int = _option(
        "fetchOffset.retryIntervalMs", parsing.integer(0), "How long it waits in between.", default=1_000
    )
    poll_timeout_ms: int = _option(
        "kafkaConsumer.pollTimeoutMs", parsing.integer(1),
        "How long an executor waits for the next record before its task fails and Spark runs it again. In a stream the "
        "time for which brokers are away does not count (see `maxBrokerOutage`); in a batch read it does.",
        default=120_000,
    )  # fmt: skip
    connections_max_idle_ms: int = _option(
        "kafka.connections.max.idle.ms", parsing.integer(1),
        "When the driver closes connections it does not use; must be above `kafka.request.timeout.ms`.",
        default=540_000,
        passed_on=True,
    )  # fmt: skip
    retry_backoff_ms: int = _option(
        "kafka.retry.backoff.ms", parsing.integer(0), "Pause before a request is sent again.", default=100,
        passed_on=True,
    )  # fmt: skip
    reconnect_backoff_ms: int = _option(
        "kafka.reconnect.backoff.ms", parsing.integer(0), "Pause before a broker is connected to again; it doubles.",
        default=50, passed_on=True,
    )  # fmt: skip
    reconnect_backoff_max_ms: int = _option(
        "kafka.reconnect.backoff.max.ms", parsing.integer(0), "The longest such pause.", default=1_000, passed_on=True
    )
    socket_connection_setup_timeout_ms: int = _option(
        "kafka.socket.connection.setup.timeout.ms", parsing.integer(1),
        "How long one attempt to connect to a broker may take, with TLS and authentication; it doubles with each that "
        "fails. To the group's coordinator it begins with a third of `kafka.session.timeout.ms`, if that is less.",
        default=10_000, passed_on=True,
    )  # fmt: skip
    socket_connection_setup_timeout_max_ms: int = _option(
        "kafka.socket.connection.setup.timeout.max.ms", parsing.integer(1), "The longest such attempt.",
        default=30_000, passed_on=True,
    )  # fmt: skip
    receive_buffer_bytes: int | None = _option(
        "kafka.receive.buffer.bytes", parsing.buffer_bytes, "Size of the sockets' receive buffer; -1 is the system's.",
        shown="the system's",
    )  # fmt: skip
    send_buffer_bytes: int | None = _option(
        "kafka.send.buffer.bytes", parsing.buffer_bytes, "Size of the sockets' send buffer; -1 is the system's.",
        shown="the system's",
    )  # fmt: skip
    client_dns_lookup: str = _option(
        "kafka.client.dns.lookup", parsing.choice("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
        "Whether a bootstrap server's name is replaced by the canonical names of its addresses.",
        default="use_all_dns_ips", passed_on=True,
    )  # fmt: skip
    proxy_url: Secret | None = _option(
        "kafka.proxy.url", security.proxy,
        "A proxy that driver and executors connect through: `socks5://host:port` (`socks5h` has it look up brokers' "
        "names) or `http://host:port` (CONNECT). Where it wants a password, `user:password@` before the host, as they "
        "are, not percent-encoded.",
        shown="none", passed_on=True, secret=True,
    )  # fmt: skip
    fetch_min_bytes: int = _option(
        "kafka.fetch.min.bytes", parsing.integer(1), "A broker answers a fetch when it has this much.", default=1
    )
    fetch_max_bytes: int = _option(
        "kafka.fetch.max.bytes", parsing.integer(1024),
        "Most bytes of one fetch response; a larger batch still gets through.",
        default=52_428_800,
    )  # fmt: skip
    fetch_max_wait_ms: int = _option(
        "kafka.fetch.max.wait.ms",
        parsing.integer(0),
        "A broker answers a fetch after this long with whatever it has. If it has not begun to 5 s later, the cluster "
        "is asked who leads by now, and the fetch is sent again over another connection.",
        default=500,
    )
    max_partition_fetch_bytes: int = _option(
        "kafka.max.partition.fetch.bytes", parsing.integer(1),
        "Most bytes of one partition in one fetch response; a larger batch still comes through.", default=1_048_576,
    )  # fmt: skip
    isolation_level: str = _option(
        "kafka.isolation.level", parsing.choice(READ_UNCOMMITTED, READ_COMMITTED),
        "`read_committed` hides records of aborted transactions and reads up to the last stable offset, where the "
        "first transaction that is still open begins; `read_uncommitted` shows all records at once.",
        default=READ_UNCOMMITTED,
    )  # fmt: skip
    check_crcs: bool = _option(
        "kafka.check.crcs", parsing.boolean, "Whether the checksum of every record batch is checked.", default=True
    )
    event_log: str | None = _option(
        "eventLog", parsing.writable_file,
        "Streams only. A file on the driver to which every assignment, planned batch and commit is appended as a line "
        "of JSON; `python -m spark_kafka_group verify` checks them.",
        shown="none",
    )  # fmt: skip

    security_protocol: str = _option(
        "kafka.security.protocol", security.one_of(*PROTOCOLS),
        "How to talk to brokers: `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`. See Security for all below.",
        default="PLAINTEXT",
    )  # fmt: skip
    sasl_mechanism: str | None = _option(
        "kafka.sasl.mechanism", security.mechanism, "`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` or `OAUTHBEARER`.",
        shown="required with SASL",
    )  # fmt: skip
    sasl_jaas_config: LoginModule | None = _option(
        "kafka.sasl.jaas.config", security.login_module,
        "Kafka's login module with its options, as Java clients have it: `…ScramLoginModule required username=\"…\" "
        "password=\"…\";`.",
        shown="required for `PLAIN` and `SCRAM`", secret=True,
    )  # fmt: skip
    sasl_login_callback_handler_class: str | None = _option(
        "kafka.sasl.login.callback.handler.class", parsing.text,
        "OAUTHBEARER with tokens of your own: `module:Class` with `token()` and, if you like, `extensions()`.",
        shown="none",
    )  # fmt: skip
    sasl_oauthbearer_token_endpoint_url: Secret | None = _option(
        "kafka.sasl.oauthbearer.token.endpoint.url", security.endpoint,
        "OAUTHBEARER: where to ask for tokens (client credentials), or `file:` and the path of a token. "
        "`http:` and `file:` have to be allowed, see Security.",
        shown="none", secret=True,
    )  # fmt: skip
    sasl_oauthbearer_client_credentials_client_id: str | None = _option(
        "kafka.sasl.oauthbearer.client.credentials.client.id", parsing.text,
        "OAUTHBEARER: the client's id at the token endpoint; also `clientId` in `kafka.sasl.jaas.config`.",
        shown="none",
    )  # fmt: skip
    sasl_oauthbearer_client_credentials_client_secret: Secret | None = _option(
        "kafka.sasl.oauthbearer.client.credentials.client.secret", security.secret,
        "OAUTHBEARER: the client's secret; also `clientSecret` in `kafka.sasl.jaas.config`.",
        shown="none", secret=True,
    )  # fmt: skip
    sasl_oauthbearer_scope: str | None = _option(
        "kafka.sasl.oauthbearer.scope", parsing.text,
        "OAUTHBEARER: the scope to ask for; also `scope` in `kafka.sasl.jaas.config`.",
        shown="none",
    )  # fmt: skip
    ssl_truststore_location: str | None = _option(
        "kafka.ssl.truststore.location", security.location,
        "A file with the certificates to trust, PEM or PKCS12.",
        shown="what the system trusts", secret=True,
    )  # fmt: skip
    ssl_truststore_password: Secret | None = _option(
        "kafka.ssl.truststore.password", security.secret, "Password of a truststore that is PKCS12.",
        shown="none", secret=True,
    )  # fmt: skip
    ssl_truststore_type: str | None = _option(
        "kafka.ssl.truststore.type", security.one_of(*STORE_TYPES),
        "`PKCS12`, `PEM` or `JKS`, as Java has it: not needed, as files show what they are.",
        shown="what the file is",
    )  # fmt: skip
    ssl_truststore_certificates: str | None = _option(
        "kafka.ssl.truststore.certificates", parsing.text, "The certificates to trust, PEM in the option itself.",
        shown="none",
    )  # fmt: skip
    ssl_keystore_location: str | None = _option(
        "kafka.ssl.keystore.location", security.location,
        "A file with this client's private key and certificate chain, PEM or PKCS12, for mutual TLS.",
        shown="none", secret=True,
    )  # fmt: skip
    ssl_keystore_password: Secret | None = _option(
        "kafka.ssl.keystore.password", security.secret, "Password of a keystore that is PKCS12.",
        shown="none", secret=True,
    )  # fmt: skip
    ssl_keystore_type: str | None = _option(
        "kafka.ssl.keystore.type",
        security.one_of(*STORE_TYPES),
        "As `kafka.ssl.truststore.type`.",
        shown="what the file is",
    )
    ssl_keystore_key: Secret | None = _option(
        "kafka.ssl.keystore.key", security.secret, "This client's private key, PEM in the option itself.",
        shown="none", secret=True,
    )  # fmt: skip
    ssl_keystore_certificate_chain: str | None = _option(
        "kafka.ssl.keystore.certificate.chain", parsing.text,
        "The certificate chain to `kafka.ssl.keystore.key`, PEM in the option itself.",
        shown="none",
    )  # fmt: skip
    ssl_key_password: Secret | None = _option(
        "kafka.ssl.key.password", security.secret, "Password of a private key that is PEM.",
        shown="none", secret=True,
    )  # fmt: skip
    ssl_endpoint_identification_algorithm: str = _option(
        "kafka.ssl.endpoint.identification.algorithm", security.identification,
        "`https`: a broker's certificate must be for the name it is reached by. Empty: any name.",
        default="https",
    )  # fmt: skip
    ssl_protocol: str = _option(
        "kafka.ssl.protocol", security.newest_tls, "The newest version of TLS to speak.", default="TLSv1.3"
    )
    ssl_enabled_protocols: tuple[str, ...] = _option(
        "kafka.ssl.enabled.protocols", security.tls_versions, "Versions of TLS to speak.",
        default=TLS_PROTOCOLS, shown="`TLSv1.2,TLSv1.3`",
    )  # fmt: skip
    ssl_cipher_suites: tuple[str, ...] = _option(
        "kafka.ssl.cipher.suites", parsing.names,
        "Cipher suites to offer, by Java's names. Those of TLS 1.3 all or none.",
        default=(), shown="OpenSSL's",
    )  # fmt: skip

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Options:
        """Check `raw`, as given to ``option()``, and turn it into typed values.

        Raises
        ------
        OptionError
            On the first option that is unknown, refused, malformed, missing, or contradicts another one.
        """
        values: dict[str, Any] = {}
        for name, given in raw.items():
            field = _FIELDS.get(name.lower())
            if field is None:
                raise OptionError(_unknown(name))
            text = _text(field.metadata["name"], given)
            try:
                values[field.name] = field.metadata["parse"](text)
            except ValueError as error:
                hidden = field.metadata["secret"] or security.is_key(text)
                shown = "" if hidden else f" ({shortened(text)})"
                raise OptionError(f"{field.metadata['name']}{shown} {error}") from None
        for field in dataclasses.fields(cls):
            if field.metadata["required"] and field.name not in values:
                raise OptionError(f"option {field.metadata['name']} is missing: {field.metadata['doc']}")
        options = cls(**values)
        _cross_check(options)
        return options

    @property
    def subscription(self) -> Subscription:
        """What is read, whichever of the three options said it, retry topics included."""
        delays = self.retry_delays_ms
        of = [topic for topic in self.topics if delay_of(topic, delays) is None] if delays else []
        topics = dict.fromkeys((*self.topics, *(retry_topic(topic, delay) for topic in of for delay in delays)))
        return Subscription(tuple(topics), self.topic_pattern, self.assigned, delays)

    @property
    def starting(self) -> Bound | None:
        """Where a new query starts, whichever of the three options said it."""
        return self.starting_timestamp or self.starting_offsets_by_timestamp or self.starting_offsets

    @property
    def ending(self) -> Bound | None:
        """Where reading ends, whichever of the three options said it."""
        return self.ending_timestamp or self.ending_offsets_by_timestamp or self.ending_offsets

    def passed_on(self) -> dict[str, Any]:
        """What kafka-python is to be told as it is, by its own names."""
        fields = (field for field in dataclasses.fields(self) if field.metadata["passed_on"])
        values = {field.name: getattr(self, field.name) for field in fields}
        return {name: value.text if isinstance(value, Secret) else value for name, value in values.items()}

    @property
    def committed_only(self) -> bool:
        """Whether records of transactions that are open, or were aborted, are not for this query."""
        return self.isolation_level == READ_COMMITTED

    @property
    def security(self) -> Security:
        """How connections are made safe."""
        return Security(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Security)})

    def __repr__(self) -> str:
        set_here = [f"{f.metadata['name']}" for f in dataclasses.fields(self) if getattr(self, f.name) != f.default]
        return f"Options({', '.join(set_here)})"


_FIELDS = {field.metadata["name"].lower(): field for field in dataclasses.fields(Options)}
OPTION_NAMES = frozenset(_FIELDS)
"""Names of all options, in lower case."""


def _text(option: str, value: object) -> str:
    """As Spark's ``option()`` turns a value into text."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if value is None:
        raise OptionError(f"{option} is None: give it a value, or leave it out")
    if len(text) > LONGEST_TEXT:
        raise OptionError(f"{option} has {len(text)} characters, and may have {LONGEST_TEXT}")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise OptionError(f"{option} has half a character in it, which is no text: look how it was decoded")
    return text


def _unknown(name: str) -> str:
    # A value that was written into the name is not shown, as it may be secret.
    name = re.split("[=:\"'\n]|-----BEGIN", name, maxsplit=1)[0] or "without a name"
    if len(name) > LONGEST_NAME:
        return f"option {shortened(name)} is not known: no option has so long a name"
    refused = why_unsupported(name)
    if refused is not None:
        return f"option {name} is not supported: {refused}"
    lowered = name.lower()
    if f"kafka.{lowered}" in _FIELDS:
        nearest = [f"kafka.{lowered}"]
    else:
        import difflib

        nearest = difflib.get_close_matches(lowered, _FIELDS, n=1, cutoff=0.0)
    return f"option {name} is not known; the nearest is {_FIELDS[nearest[0]].metadata['name']}"


def _below(low: str, high: str) -> Callable[[Options], str | None]:
    """A check that one option's value is below another's."""

    def check(options: Options) -> str | None:
        small, large = (getattr(options, _FIELDS[name].name) for name in (low, high))
        return None if small < large else f"{low} ({small}) must be below {high} ({large})"

    return check


def _min_not_above_max(options: Options) -> str | None:
    least, most = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if least is None or most is None or least <= most:
        return None
    return f"minOffsetsPerTrigger ({least}) must not be above maxOffsetsPerTrigger ({most})"


def _static_needs_group(options: Options) -> str | None:
    if options.group_instance_id is None or options.group_id is not None:
        return None
    return f"kafka.group.instance.id ({options.group_instance_id}) needs kafka.group.id"


def _one_subscription(options: Options) -> str | None:
    names = ("subscribe", "subscribePattern", "assign")
    given = [name for name in names if getattr(options, _FIELDS[name.lower()].name)]
    if len(given) == 1:
        return None
    return f"exactly one of {', '.join(names)} must be given; {' and '.join(given) or 'none'} is"


def _assign_has_no_membership(options: Options) -> str | None:
    if not options.assigned or options.group_instance_id is None:
        return None
    return "assign reads without membership: kafka.group.instance.id cannot mean anything; take subscribe, or drop it"


def _retry_topics_can_be_read(options: Options) -> str | None:
    if options.retry_delays_ms and options.assigned:
        return "retryTopics is not for assign, which reads the partitions it names and no others: take subscribe"
    for topic in options.subscription.topics:
        if len(topic) > LONGEST_TOPIC:
            return f"retryTopics makes {topic}, and a topic's name has at most {LONGEST_TOPIC} characters"
    return None


def _named_is_subscribed(name: str) -> Callable[[Options], str | None]:
    def check(options: Options) -> str | None:
        value = getattr(options, _FIELDS[name.lower()].name)
        subscription = options.subscription
        topics = value.topics() if isinstance(value, Bound) else {tp.topic for tp in value or ()}
        partitions = value.partitions() if isinstance(value, Bound) else set(value or ())
        if subscription.manual:
            others = sorted(map(str, partitions - subscription.partitions))
        else:
            others = sorted(topic for topic in topics if not subscription.includes(topic))
        return f"{name} names {listed(others)}, which {_subscribed_by(options)} does not" if others else None

    return check


def _subscribed_by(options: Options) -> str:
    return "subscribe" if options.topics else "subscribePattern" if options.topic_pattern else "assign"


def _security_makes_sense(options: Options) -> None:
    check(options.security)


def _plugins_can_be_loaded(options: Options) -> str | None:
    strategies = [s for s in options.assignment_strategy if s not in {*STRATEGIES, *JAVA_STRATEGIES}]
    for strategy in strategies:
        if ":" not in strategy:
            return (
                f"kafka.partition.assignment.strategy ({shortened(strategy)}) must be {', '.join(STRATEGIES)}, one "
                f"of Java's classes for these, or module:Class"
            )
        plugins.load_class("kafka.partition.assignment.strategy", strategy, ["assign"])
    if options.rebalance_listener is not None:
        plugins.load_class("rebalanceListener", options.rebalance_listener, LISTENER_METHODS)
    for interceptor in options.interceptors:
        plugins.load_class("interceptors", interceptor, (), INTERCEPTOR_METHODS)
    return None


CROSS_CHECKS: tuple[Callable[[Options], str | None], ...] = (
    _one_subscription,
    _retry_topics_can_be_read,
    _min_not_above_max,
    _below("kafka.heartbeat.interval.ms", "kafka.session.timeout.ms"),
    _below("kafka.fetch.max.wait.ms", "kafka.request.timeout.ms"),
    _below("kafka.request.timeout.ms", "kafka.connections.max.idle.ms"),
    _static_needs_group,
    _assign_has_no_membership,
    _named_is_subscribed("startingOffsets"),
    _named_is_subscribed("startingOffsetsByTimestamp"),
    _named_is_subscribed("endingOffsets"),
    _named_is_subscribed("endingOffsetsByTimestamp"),
    _named_is_subscribed("pausePartitions"),
    _plugins_can_be_loaded,
    _security_makes_sense,
)


def _cross_check(options: Options) -> None:
    for cross_check in CROSS_CHECKS:
        problem = cross_check(options)
        if problem:
            raise OptionError(problem)


STREAM_ONLY = (
    "maxBrokerOutage",
    "retryTopics",
    "onOffsetConflict",
    "pausePartitions",
    "pauseFile",
    "rebalanceListener",
    "eventLog",
)
IGNORED_IN_BATCH = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
"""As in Spark's source: a program has one set of options for its stream and its batch reads."""


def check_for_batch(options: Options) -> None:
    """Refuse what only a stream can have, and starts that a batch read cannot have.

    Raises
    ------
    OptionError
    """
    starting = options.starting
    if starting is not None and starting.group and options.group_id is None:
        raise OptionError("startingOffsets=group needs kafka.group.id")
    for where, position in () if starting is None else starting.positions():
        if position == LATEST:
            raise OptionError(
                f"startingOffsets has latest (-1) for {where}, which would make an empty batch: use earliest (-2), "
                f"an offset, a timestamp or group"
            )
    for name in (*STREAM_ONLY, *IGNORED_IN_BATCH):
        field = _FIELDS[name.lower()]
        if getattr(options, field.name) == field.default:
            continue
        if name not in IGNORED_IN_BATCH:
            raise OptionError(f"{name} is for streams: a batch read has no use for it")
        log.warning("%s is for streams: a batch read reads everything up to its end", name)


def markdown_table() -> str:
    """The README's table of options."""
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for field in dataclasses.fields(Options):
        shown = field.metadata["shown"]
        if shown is None:
            default = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
            shown = f"`{default}`"
        lines.append(f"| `{field.metadata['name']}` | {shown} | {field.metadata['doc']} |")
    return "\n".join(lines)
