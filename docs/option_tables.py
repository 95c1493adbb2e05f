"""Tables of docs/options.md, as the sections declare the options."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from spark_kafka_group.options.producing import SINK_SECTIONS
from spark_kafka_group.options.sections import DECLARED, SECTIONS
from spark_kafka_group.options.unsupported import OF_CLIENTS, UNSUPPORTED, UNSUPPORTED_IN_SINKS

FIRST = {
    "kafka.bootstrap.servers": "Always: your brokers.",
    "subscribe": "Nearly always: your topics. `subscribePattern` and `assign` are the alternatives.",
    "kafka.group.id": "You want to name the group: other members, lag tools or ACLs know its name.",
    "startingOffsets": "A new query should not start at the group's committed offsets.",
    "maxOffsetsPerTrigger": "A micro-batch must not grow with the backlog: it bounds the time until a commit.",
    "kafka.max.poll.interval.ms": "The group has other members, and micro-batches take minutes.",
    "failOnDataLoss": "The query should go on after retention has deleted records that it has not read.",
    "onCorruptRecord": "The query should go on after a damaged record batch.",
    "kafka.isolation.level": "Producers write in transactions.",
    "kafka.security.protocol": "Brokers want TLS or SASL. [Security](security.md) has the options that go with it.",
}
"""The options that matter first, and when to set each."""

SPARKS = frozenset({
    "assign", "endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp", "failOnDataLoss",
    "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "groupIdPrefix", "includeHeaders",
    "kafkaConsumer.pollTimeoutMs",
    "maxOffsetsPerTrigger", "maxRecordsPerPartition", "maxTriggerDelay", "minOffsetsPerTrigger", "minPartitions",
    "partition.metadata.cache.ttl.ms",
    "startingOffsets", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "startingTimestamp",
    "subscribe", "subscribePattern", "topic",
})  # fmt: skip
"""Options that Spark's own kafka source or sink has, beside those that begin with ``kafka.``."""
COLUMNS = "| option | default | meaning |", "|---|---|---|"


def first_table() -> str:
    """The options that matter first."""
    rows = [f"| `{name}` | {_default(DECLARED[name.lower()][1])} | {reason} |" for name, reason in FIRST.items()]
    return "\n".join(["| option | default | set it when |", "|---|---|---|", *rows])


def section_table(section: str) -> str:
    """The options of a section, by its name in :data:`SECTIONS` or :data:`SINK_SECTIONS`."""
    rows = [_row(field) for field in dataclasses.fields((SINK_SECTIONS | SECTIONS)[section])]  # type: ignore[arg-type]
    return "\n".join([*COLUMNS, *rows])


def own_options() -> str:
    """The options of the source that neither Kafka's clients nor Spark's source have."""
    names = [field.metadata["name"] for _, field in DECLARED.values()]
    return ", ".join(f"`{name}`" for name in names if not name.startswith("kafka.") and name not in SPARKS)


def refused_table() -> str:
    """Settings of Kafka's consumers that are errors, by the reason, which has the advice."""
    return _refused(UNSUPPORTED)


def refused_in_sinks_table() -> str:
    """Settings of Kafka's producers that are errors, without those that no client here has."""
    return _refused({name: reason for name, reason in UNSUPPORTED_IN_SINKS.items() if name not in OF_CLIENTS})


def _refused(reasons: Mapping[str, str]) -> str:
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(reason, []).append(f"`{name}`")
    rows = [f"| {', '.join(settings)} | {reason} |" for reason, settings in names.items()]
    return "\n".join(["| setting | instead |", "|---|---|", *rows])


def _row(field: dataclasses.Field[Any]) -> str:
    name = field.metadata["name"]
    return f"| `{name}` | {_default(field)} | {field.metadata['doc']} |"


def _default(field: dataclasses.Field[Any]) -> str:
    shown: str | None = field.metadata["shown"]
    if shown is not None:
        return shown
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"
