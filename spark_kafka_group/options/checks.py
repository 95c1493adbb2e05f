"""Contradictions between options, and names in them without a meaning here; checked before any network call."""

from __future__ import annotations

import logging
from collections.abc import Callable

from spark_kafka_group.assignors import BUILT_IN, built_in
from spark_kafka_group.errors import OptionError
from spark_kafka_group.options.bounds import Bound
from spark_kafka_group.options.group import LISTENER_METHODS
from spark_kafka_group.options.parsing import RAW
from spark_kafka_group.options.reading import FAIL, INTERCEPTOR_METHODS
from spark_kafka_group.options.schema_registry import SchemaRegistry, as_issuers, contradiction, registrys
from spark_kafka_group.options.sections import Sections
from spark_kafka_group.options.security.settings import Security
from spark_kafka_group.options.transacting import DECISION_TOPIC
from spark_kafka_group.options.typed_values import (
    BINARY,
    CONFLUENT,
    CONFLUENT_HEADER,
    JSON,
    OF_PROTOBUF,
    PROTOBUF,
    STRING,
    WITH_FIELDS,
)
from spark_kafka_group.text.foreign_text import listed, shortened
from spark_kafka_group.values import user_classes
from spark_kafka_group.values.offsets import LATEST

LONGEST_TOPIC = 249

log = logging.getLogger(__name__)


def _below(low: str, high: str) -> Callable[[Sections], str | None]:
    """A check that one option's value is below another's."""

    def check(options: Sections) -> str | None:
        small, large = (options.value(name) for name in (low, high))
        return None if small < large else f"{low} ({small}) must be below {high} ({large})"

    return check


def _min_not_above_max(options: Sections) -> str | None:
    least, most = options.reading.min_offsets_per_trigger, options.reading.max_offsets_per_trigger
    if least is None or most is None or least <= most:
        return None
    return f"minOffsetsPerTrigger ({least}) must not be above maxOffsetsPerTrigger ({most})"


def _static_needs_group(options: Sections) -> str | None:
    if options.group.instance_id is None or options.group.id is not None:
        return None
    return f"kafka.group.instance.id ({options.group.instance_id}) needs kafka.group.id"


def _one_subscription(options: Sections) -> str | None:
    names = ("subscribe", "subscribePattern", "assign")
    given = [name for name in names if options.value(name)]
    if len(given) == 1:
        return None
    found = f"{' and '.join(given)} are" if given else "none is"
    return f"exactly one of {', '.join(names)} must be given; {found}"


def _assign_has_no_membership(options: Sections) -> str | None:
    if not options.reading.assigned or options.group.instance_id is None:
        return None
    return "assign reads without membership: kafka.group.instance.id cannot mean anything; take subscribe, or drop it"


def _offsets_in_transactions_need_membership(options: Sections) -> str | None:
    if not options.reading.assigned or options.group.transactional_id is None:
        return None
    return (
        "assign reads without membership: nothing would keep a process that was replaced from committing in the "
        "sink's transaction, so kafka.transactional.id is not for it; take subscribe, or drop it"
    )


def _decisions_are_of_a_sink(options: Sections) -> str | None:
    if options.group.transactional_id is not None or options.group.decision_topic == DECISION_TOPIC:
        return None
    return "decisionTopic needs kafka.transactional.id, both as those of the query's sink: set that, or leave it out"


def _decisions_are_not_read(options: Sections) -> str | None:
    topic = options.group.decision_topic
    if options.group.transactional_id is None or not options.reading.subscription.includes(topic):
        return None
    return (
        f"decisionTopic ({topic}) is read by this query too, through {_subscribed_by(options)}: each micro-batch would "
        f"write a record for the next one; leave it out there, or name another decisionTopic"
    )


def _retry_topics_can_be_read(options: Sections) -> str | None:
    if options.reading.retry_delays_ms and options.reading.assigned:
        return "retryTopics is not for assign, which reads the partitions it names and no others: take subscribe"
    for topic in options.reading.subscription.topics:
        if len(topic) > LONGEST_TOPIC:
            return f"retryTopics makes {topic}, and a topic's name has at most {LONGEST_TOPIC} characters"
    return None


def _named_is_subscribed(name: str) -> Callable[[Sections], str | None]:
    def check(options: Sections) -> str | None:
        value = options.value(name)
        subscription = options.reading.subscription
        topics = value.topics() if isinstance(value, Bound) else {tp.topic for tp in value or ()}
        partitions = value.partitions() if isinstance(value, Bound) else set(value or ())
        if subscription.manual:
            others = sorted(map(str, partitions - subscription.partitions))
        else:
            others = sorted(topic for topic in topics if not subscription.includes(topic))
        return f"{name} names {listed(others)}, which {_subscribed_by(options)} does not" if others else None

    return check


def _subscribed_by(options: Sections) -> str:
    return "subscribe" if options.reading.topics else "subscribePattern" if options.reading.topic_pattern else "assign"


def _security_makes_sense(options: Sections) -> None:
    check_security(options.security)


def _values_can_be_decoded(options: Sections) -> str | None:
    """Why options of typed columns contradict each other, or lack something; None if they do not."""
    check_registry(options.registry)
    values, registry = options.values, bool(options.registry.url)
    selected = options.reading.selected_columns
    for column in ("value", "key"):
        kind = values.of_column(column).format
        nested = [name for name in selected if name.startswith(f"{column}.")]
        if kind in (BINARY, STRING) and nested:
            return f"columns has {nested[0]}, and {column}Format is {kind}: set {column}Format to {WITH_FIELDS}"
        problem = _problem_of_column(options, column, kind)
        if problem:
            return problem
    raw = [name for name in selected if name in RAW and values.of_column(RAW[name]).format == BINARY]
    if raw:
        return f"columns has {raw[0]}, and {RAW[raw[0]]} has the bytes already: take {RAW[raw[0]]}"
    kinds = {values.value_format, values.key_format}
    if registry and kinds <= {BINARY, STRING}:
        return f"schema.registry.url needs valueFormat or keyFormat, {WITH_FIELDS}"
    if values.on_malformed_value != FAIL and kinds <= {BINARY, STRING}:
        return f"onMalformedValue ({values.on_malformed_value}) needs valueFormat or keyFormat, {WITH_FIELDS}"
    if values.time_zone is not None and JSON not in kinds:
        return "timeZone needs valueFormat or keyFormat, json"
    of_protobuf = [name for name in OF_PROTOBUF if name in values.given()]
    if of_protobuf and PROTOBUF not in kinds:
        return f"{of_protobuf[0]} needs valueFormat or keyFormat, protobuf"
    return None


def _problem_of_column(options: Sections, column: str, kind: str) -> str | None:
    given = options.values.of_column(column)
    if kind in (BINARY, STRING):
        names = given.given(column)
        return f"{names[0]} needs {column}Format, {WITH_FIELDS}" if names else None
    if kind == PROTOBUF:
        return _problem_of_protobuf(options, column)
    of_protobuf = given.given(column, "DescriptorFile", "Message")
    if of_protobuf:
        return f"{of_protobuf[0]} needs {column}Format=protobuf"
    of_subject = given.given(column, "Subject", "SchemaVersion")
    if kind == JSON:
        if given.schema is None:
            return f"{column}Format=json needs {column}Schema, such as 'id BIGINT, name STRING'"
        return f"{of_subject[0]} has no meaning with {column}Format=json: remove it" if of_subject else None
    if given.schema is not None and of_subject:
        return f"{column}Schema and {of_subject[0]} are both given: one of them"
    if not options.registry.url:
        framing = given.framing
        if given.schema is None:
            return f"{column}Format=avro needs schema.registry.url, or {column}Schema"
        if framing in (CONFLUENT, CONFLUENT_HEADER):
            return f"{column}Framing={framing} needs schema.registry.url, for the schemas that values were written with"
        return None
    return _problem_of_pattern(options, column) if given.schema is None and given.subject is None else None


def _problem_of_pattern(options: Sections, column: str) -> str | None:
    if options.reading.topic_pattern is None:
        return None
    return (
        f"subscribePattern with {column}Format={options.values.of_column(column).format} needs {column}Subject or "
        f"{column}Schema: the topics of a pattern come and go, and the column has one type"
    )


def _problem_of_protobuf(options: Sections, column: str) -> str | None:
    given = options.values.of_column(column)
    has_file, has_schema = given.descriptor_file is not None, given.schema is not None
    sources = given.given(column, "Schema", "DescriptorFile", "Subject", "SchemaVersion")
    if (has_schema or has_file) and len(sources) > 1:
        return f"{sources[0]} and {sources[1]} are both given: one of them"
    if has_file and given.message is None:
        return f"{column}DescriptorFile needs {column}Message, the name of the message"
    if has_schema or has_file:
        return None
    if not options.registry.url:
        return f"{column}Format=protobuf needs schema.registry.url, {column}DescriptorFile or {column}Schema"
    return _problem_of_pattern(options, column) if given.subject is None else None


def _plugins_can_be_loaded(options: Sections) -> str | None:
    strategies = [s for s in options.group.assignment_strategy if built_in(s) is None]
    for strategy in strategies:
        if ":" not in strategy:
            return (
                f"kafka.partition.assignment.strategy ({shortened(strategy)}) must be {', '.join(BUILT_IN)}, one "
                f"of Java's classes for these, or module:Class"
            )
        user_classes.load_class("kafka.partition.assignment.strategy", strategy, ["assign"])
    if options.group.rebalance_listener is not None:
        user_classes.load_class("rebalanceListener", options.group.rebalance_listener, LISTENER_METHODS)
    for interceptor in options.reading.interceptors:
        user_classes.load_class("interceptors", interceptor, (), INTERCEPTOR_METHODS)
    return None


CROSS_CHECKS: tuple[Callable[[Sections], str | None], ...] = (
    _one_subscription,
    _retry_topics_can_be_read,
    _min_not_above_max,
    _below("kafka.heartbeat.interval.ms", "kafka.session.timeout.ms"),
    _below("kafka.fetch.max.wait.ms", "kafka.request.timeout.ms"),
    _below("kafka.request.timeout.ms", "kafka.connections.max.idle.ms"),
    _static_needs_group,
    _assign_has_no_membership,
    _offsets_in_transactions_need_membership,
    _decisions_are_of_a_sink,
    _decisions_are_not_read,
    _named_is_subscribed("startingOffsets"),
    _named_is_subscribed("startingOffsetsByTimestamp"),
    _named_is_subscribed("endingOffsets"),
    _named_is_subscribed("endingOffsetsByTimestamp"),
    _named_is_subscribed("pausePartitions"),
    _plugins_can_be_loaded,
    _security_makes_sense,
    _values_can_be_decoded,
)


def check(options: Sections) -> None:
    """See whether options make sense together. Reads the files that security settings name. Raises OptionError."""
    for cross_check in CROSS_CHECKS:
        problem = cross_check(options)
        if problem:
            raise OptionError(problem)


STREAM_ONLY = (
    "maxBrokerOutage",
    "retryTopics",
    "onOffsetConflict",
    "kafka.transactional.id",
    "pausePartitions",
    "pauseFile",
    "rebalanceListener",
    "eventLog",
)
IGNORED_IN_BATCH = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxBytesPerTrigger", "maxTriggerDelay")
"""Options without effect in a batch read, as in Spark's source: a program may have one set of options for all its
reads."""


def check_for_batch(options: Sections) -> None:
    """Refuse options of streams, and starts that a batch read cannot have. Raises OptionError."""
    starting = options.reading.starting
    if starting is not None and starting.group and options.group.id is None:
        raise OptionError("startingOffsets=group needs kafka.group.id")
    for place, position in () if starting is None else starting.positions():
        if position == LATEST:
            raise OptionError(
                f"startingOffsets has latest (-1) for {place}, which would make an empty batch: use earliest (-2), "
                f"an offset, a timestamp or group"
            )
    given = options.given()
    for name in (*STREAM_ONLY, *IGNORED_IN_BATCH):
        if name not in given:
            continue
        if name not in IGNORED_IN_BATCH:
            raise OptionError(f"{name} is an option of streams and has no effect in a batch read: remove it")
        log.warning("%s has no effect in a batch read, which always reads up to its end", name)


def check_security(security: Security) -> None:
    """See whether settings, and the files they name, make sense together. Raises OptionError without any secret."""
    protocol = security.security_protocol
    if not security.sasl and (useless := security.given_with("sasl.")):
        raise OptionError(
            f"{useless[0]} needs kafka.security.protocol SASL_PLAINTEXT or SASL_SSL; it is {protocol}, so no "
            f"client would be authenticated"
        )
    if not security.tls and (useless := security.given_with("ssl.")):
        raise OptionError(
            f"{useless[0]} needs kafka.security.protocol SSL or SASL_SSL; it is {protocol}, so nothing would be "
            f"encrypted"
        )
    if security.sasl:
        from spark_kafka_group.options.security.credentials import credentials

        credentials(security)
    if security.tls:
        from spark_kafka_group.options.security.tls import client_context

        problem = _store_problem(security)
        if problem is not None:
            raise OptionError(problem)
        client_context(security)


def _store_problem(security: Security) -> str | None:
    """Why a store is refused: it has to be a file, or PEM in the options themselves."""
    trusted, key, chain = "ssl.truststore.certificates", "ssl.keystore.key", "ssl.keystore.certificate.chain"
    given = set(security.given_with("ssl."))
    for location, inside in (("ssl.truststore.location", trusted), ("ssl.keystore.location", key)):
        if {f"kafka.{location}", f"kafka.{inside}"} <= given:
            return f"kafka.{location} and kafka.{inside} are both given: one of them"
    needs = [
        ("ssl.truststore.password", ("ssl.truststore.location",)),
        ("ssl.truststore.type", ("ssl.truststore.location", trusted)),
        ("ssl.keystore.password", ("ssl.keystore.location",)),
        ("ssl.keystore.type", ("ssl.keystore.location", key)),
        ("ssl.key.password", ("ssl.keystore.location", key)),
        (chain, (key,)),
        (key, (chain,)),
    ]
    for name, wanted in needs:
        if f"kafka.{name}" in given and not any(f"kafka.{other}" in given for other in wanted):
            return f"kafka.{name} needs {' or '.join(f'kafka.{other}' for other in wanted)}"
    for store, inside in (("truststore", trusted), ("keystore", key)):
        kind = getattr(security, f"ssl_{store}_type")
        if f"kafka.{inside}" in given and kind not in (None, "PEM"):
            return f"kafka.ssl.{store}.type ({kind}) contradicts kafka.{inside}, which is PEM"
    return None


def check_registry(registry: SchemaRegistry) -> None:
    """See whether a registry's options, and the files they name, make sense together. Raises OptionError."""
    problem = contradiction(registry)
    if problem is not None:
        raise OptionError(problem)
    if any(name.startswith("schema.registry.ssl.") for name in registry.given()):
        try:
            check_security(registry.tls)
        except OptionError as error:
            raise OptionError(registrys(str(error))) from None
    if registry.bearer_auth_issuer_endpoint_url is not None:
        from spark_kafka_group.options.security import credentials

        try:
            credentials.check(registry.bearer_auth_issuer_endpoint_url.text)
        except OptionError as error:
            raise OptionError(as_issuers(str(error))) from None
