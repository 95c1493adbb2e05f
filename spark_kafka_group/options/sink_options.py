"""Every option of the sink: Spark's names where Spark's kafka sink has the option, ``kafka.`` plus the producer's name
where Kafka has it.

They are checked when Spark plans the write, before any network call and before any row is computed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

from spark_kafka_group.errors import OptionError
from spark_kafka_group.options.connection import ClientOptions, Connection, Fetching
from spark_kafka_group.options.given_values import check_required, values, why_unknown
from spark_kafka_group.options.producing import (
    EXACTLY_ONCE,
    MOST_IN_FLIGHT,
    SINK_DECLARED,
    SINK_SECTIONS,
    Producing,
    Writing,
)
from spark_kafka_group.options.schema_registry import SchemaRegistry
from spark_kafka_group.options.sections import DECLARED
from spark_kafka_group.options.security import Security
from spark_kafka_group.options.transacting import Transacting, TransactionOptions
from spark_kafka_group.options.typed_values import AVRO, BINARY, JSON, NONE, PROTOBUF, STRING, WITH_FIELDS, TypedValues

LATE_PROGRESS = "asyncProgressTrackingEnabled"
CHECKPOINT = "checkpointlocation"
SPARKS_OWN = frozenset({
    CHECKPOINT, "path", "provider", "queryname", LATE_PROGRESS.lower(),
    "asyncprogresstrackingcheckpointintervalms", "_asyncprogresstrackingoverridesinksupportcheck",
})  # fmt: skip
"""Keys of Spark's own, in lower case, among the options that it hands to a sink."""


@dataclasses.dataclass(frozen=True, repr=False)
class SinkOptions:
    """The options of one write, checked. Built by :meth:`parse`."""

    writing: Writing
    producing: Producing
    transacting: Transacting
    connection: Connection
    security: Security
    values: TypedValues = TypedValues()
    registry: SchemaRegistry = SchemaRegistry()
    checkpoint: str | None = None

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> SinkOptions:
        """Check `raw`, as given to ``option()``, and turn it into typed values. Spark's own keys are left out. Raises
        OptionError on the first option that is unknown, refused, malformed, missing, or contradicts another one."""
        from spark_kafka_group.options.checks import check_registry, check_security

        of_ours = {name: value for name, value in raw.items() if name.lower() not in SPARKS_OWN}
        given = values(of_ours, SINK_DECLARED, SINK_SECTIONS, _unknown)
        check_required(given, SINK_DECLARED)
        sections: dict[str, Any] = {name: section(**given[name]) for name, section in SINK_SECTIONS.items()}
        sections["producing"] = _as_java_adjusts(
            sections["producing"], given["producing"].keys(), sections["connection"].request_timeout_ms
        )
        options = cls(**sections, checkpoint=next((raw[name] for name in raw if name.lower() == CHECKPOINT), None))
        for check in CROSS_CHECKS:
            problem = check(options)
            if problem:
                raise OptionError(problem)
        check_security(options.security)
        if options.registry.given():
            check_registry(options.registry)
        if options.is_exactly_once and _has_late_progress(raw):
            # Spark would repeat several batches after a crash, and only the last decision is kept.
            raise OptionError(
                f"deliveryGuarantee ({EXACTLY_ONCE}) needs Spark to log each micro-batch: leave {LATE_PROGRESS} out"
            )
        return options

    @property
    def client(self) -> ClientOptions:
        """The options of clients: what connections are made with."""
        return ClientOptions(self.connection, self.security, Fetching())

    @property
    def is_exactly_once(self) -> bool:
        """Whether each row is published once."""
        return self.writing.delivery_guarantee == EXACTLY_ONCE

    @property
    def transactions(self) -> TransactionOptions:
        """What exactly-once takes of them."""
        return TransactionOptions(self.client, self.transacting, self.producing.delivery_timeout_ms, self.checkpoint)

    def given(self) -> list[str]:
        """Names of the options that are not at their defaults."""
        return [name for section in SINK_SECTIONS for name in getattr(self, section).given()]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self.given())})"


def _unknown(name: str) -> str:
    return why_unknown(name, SINK_DECLARED, _why_refused, "docs/writing.md")


def _why_refused(name: str) -> str | None:
    from spark_kafka_group.options.unsupported import why_of_reading, why_unsupported_in_sinks

    return why_unsupported_in_sinks(name) or why_of_reading(name)


def _has_late_progress(raw: Mapping[str, Any]) -> bool:
    return any(name.lower() == LATE_PROGRESS.lower() and str(value).lower() == "true" for name, value in raw.items())


def _as_java_adjusts(producing: Producing, given: Collection[str], request_timeout_ms: int) -> Producing:
    """Defaults that follow other settings, where these leave no sense in them."""
    changed: dict[str, Any] = {}
    if "enable_idempotence" not in given and _against_idempotence(producing) is not None:
        changed["enable_idempotence"] = False
    if "batch_size" not in given:
        changed["batch_size"] = min(producing.batch_size, producing.buffer_memory)
    if "delivery_timeout_ms" not in given:
        changed["delivery_timeout_ms"] = max(producing.delivery_timeout_ms, producing.linger_ms + request_timeout_ms)
    elif "linger_ms" not in given:
        left_ms = max(0, producing.delivery_timeout_ms - request_timeout_ms)
        changed["linger_ms"] = min(producing.linger_ms, left_ms)
    return dataclasses.replace(producing, **changed)


def _against_idempotence(producing: Producing) -> str | None:
    if producing.acks != "all":
        return f"kafka.enable.idempotence needs kafka.acks=all, and it is {producing.acks}: change one of them"
    in_flight = producing.max_in_flight_requests_per_connection
    if in_flight > MOST_IN_FLIGHT:
        return (
            f"kafka.enable.idempotence needs kafka.max.in.flight.requests.per.connection ({in_flight}) to be at most "
            f"{MOST_IN_FLIGHT}: change one of them"
        )
    return None


def _idempotence_is_possible(options: SinkOptions) -> str | None:
    return _against_idempotence(options.producing) if options.producing.enable_idempotence else None


def _delivery_outlives_a_request(options: SinkOptions) -> str | None:
    delivery_ms, linger_ms = options.producing.delivery_timeout_ms, options.producing.linger_ms
    request_ms = options.connection.request_timeout_ms
    if delivery_ms >= linger_ms + request_ms:
        return None
    return (
        f"kafka.delivery.timeout.ms ({delivery_ms}) must not be below kafka.linger.ms ({linger_ms}) and "
        f"kafka.request.timeout.ms ({request_ms}) together"
    )


def _a_batch_has_room(options: SinkOptions) -> str | None:
    size, memory = options.producing.batch_size, options.producing.buffer_memory
    if size <= memory:
        return None
    return f"kafka.batch.size ({size}) must not be above kafka.buffer.memory ({memory})"


def _requests_end_before_connections(options: SinkOptions) -> str | None:
    request_ms, idle_ms = options.connection.request_timeout_ms, options.connection.connections_max_idle_ms
    if request_ms < idle_ms:
        return None
    return f"kafka.request.timeout.ms ({request_ms}) must be below kafka.connections.max.idle.ms ({idle_ms})"


def _decisions_are_apart_from_rows(options: SinkOptions) -> str | None:
    topic = options.transacting.decision_topic
    if not options.is_exactly_once or options.writing.topic != topic:
        return None
    return f"topic ({topic}) is also where decisions are kept: name another topic with decisionTopic"


def _guarantee_can_be_given(options: SinkOptions) -> str | None:
    if not options.is_exactly_once:
        given = options.transacting.given()
        return f"{given[0]} needs deliveryGuarantee={EXACTLY_ONCE}: set that, or leave it out" if given else None
    if options.transacting.transactional_id is None:
        return (
            f"deliveryGuarantee ({EXACTLY_ONCE}) needs kafka.transactional.id: give this query a name that no other "
            f"one has, and keep it over restarts"
        )
    if options.producing.acks != "all" or not options.producing.enable_idempotence:
        return (
            f"deliveryGuarantee ({EXACTLY_ONCE}) needs kafka.acks=all and kafka.enable.idempotence=true: leave both out"
        )
    return None


def _values_can_be_encoded(options: SinkOptions) -> str | None:
    values, register = options.values, options.writing.auto_register
    formats = {values.key_format, values.value_format}
    for column in ("key", "value"):
        problem = _problem_of_column(options, column)
        if problem is not None:
            return problem
    if options.registry.url and formats <= {BINARY, STRING}:
        return f"schema.registry.url needs valueFormat or keyFormat, {WITH_FIELDS}"
    if register and not options.registry.url:
        return "schema.registry.auto.register needs schema.registry.url"
    if values.time_zone is not None and JSON not in formats:
        return "timeZone needs valueFormat or keyFormat, json"
    return None


def _problem_of_column(options: SinkOptions, column: str) -> str | None:
    given = options.values.of_column(column)
    kind, schema, framing, subject, version, descriptors, _ = given
    names, of_protobuf = given.given(column), given.given(column, "DescriptorFile", "Message")
    if kind in (BINARY, STRING):
        return f"{names[0]} needs {column}Format, {WITH_FIELDS}" if names else None
    if of_protobuf and kind != PROTOBUF:
        return f"{of_protobuf[0]} needs {column}Format=protobuf"
    if descriptors is not None:
        return _problem_of_descriptors(options, column)
    if not options.registry.url:
        if kind == PROTOBUF and schema is None:
            return f"{column}Format=protobuf needs schema.registry.url, {column}DescriptorFile or {column}Schema"
        if kind == AVRO and schema is None:
            return f"{column}Format=avro needs schema.registry.url, or {column}Schema"
        if kind == JSON and schema is not None:
            return f"{column}Schema has no meaning where JSON is written without schema.registry.url: leave it out"
        if subject or version or framing not in (None, NONE):
            named = given.given(column, "Subject", "SchemaVersion", "Framing")
            return f"{named[0]} needs schema.registry.url"
        return None
    if version and (schema is not None or options.writing.auto_register):
        other = f"{column}Schema" if schema is not None else "schema.registry.auto.register"
        return f"{other} and {column}SchemaVersion are both given: one of them"
    if kind == JSON and schema is None and options.writing.auto_register and framing != NONE:
        return (
            f"schema.registry.auto.register needs {column}Schema, a JSON Schema, as none is made of the column's type: "
            f"give it, or {column}Framing=none"
        )
    return None


def _problem_of_descriptors(options: SinkOptions, column: str) -> str | None:
    given = options.values.of_column(column)
    others = given.given(column, "Schema", "Subject", "SchemaVersion")
    if others:
        return f"{column}DescriptorFile and {others[0]} are both given: one of them"
    if given.message is None:
        return f"{column}DescriptorFile needs {column}Message, the name of the message"
    if options.registry.url and given.framing != NONE:
        return (
            f"{column}DescriptorFile needs {column}Framing=none, as no registry has descriptors: or give "
            f"{column}Schema, the text of the .proto file"
        )
    return f"{column}Framing needs schema.registry.url" if given.framing not in (None, NONE) else None


CROSS_CHECKS: tuple[Callable[[SinkOptions], str | None], ...] = (
    _guarantee_can_be_given,
    _decisions_are_apart_from_rows,
    _idempotence_is_possible,
    _delivery_outlives_a_request,
    _a_batch_has_room,
    _requests_end_before_connections,
    _values_can_be_encoded,
)


LARGEST_REQUEST = 100 * 1024 * 1024  # brokers take no larger one (socket.request.max.bytes)
WITHOUT_END_MS = 2**31 - 1
OF_BOTH = {name for name in DECLARED if name in SINK_DECLARED and SINK_DECLARED[name][0] in ("connection", "security")}
"""Options that mean the same to source and sink."""
OF_BOTH |= {"kafka.transactional.id"}


def sink_options(options: ClientOptions, outlives: bool) -> SinkOptions:
    """For a task that writes by itself, at least once. `outlives`: whether brokers that are away are waited for, up to
    maxBrokerOutage if that is set."""
    producing = Producing(**_differing(options.connection, outlives))
    return SinkOptions(Writing(), producing, Transacting(), options.connection, options.security)


def raw_sink_options(
    raw: Mapping[str, Any], connection: Connection, given: Mapping[str, Any], outlives: bool
) -> dict[str, Any]:
    """For Spark's writer. `raw`: the source's: those that the sink has, too, are taken over. `connection`: of the
    source. `given`: those that the sink alone has."""
    differing = _differing(connection, outlives)
    names = {field.name: field.metadata["name"] for section, field in SINK_DECLARED.values() if section == "producing"}
    shared = {name: value for name, value in raw.items() if name.lower() in OF_BOTH}
    own = {name.lower() for name in given}
    defaults = {names[field]: value for field, value in differing.items() if names[field] not in own}
    return defaults | shared | dict(given)


def _differing(connection: Connection, outlives: bool) -> dict[str, Any]:
    """Settings whose defaults differ: a record that its producer compressed may be over the topics' limit without."""
    differing: dict[str, Any] = {"compression_type": "gzip", "max_request_size": LARGEST_REQUEST}
    if outlives:
        least_ms = connection.request_timeout_ms + Producing().linger_ms
        outage_ms = connection.max_broker_outage_ms
        wait_ms = WITHOUT_END_MS if outage_ms is None else max(outage_ms, least_ms)
        differing |= {"delivery_timeout_ms": wait_ms, "max_block_ms": wait_ms}
    return differing
