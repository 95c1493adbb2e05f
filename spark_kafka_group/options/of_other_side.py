"""Options of reading that were given to the sink, and options of writing that were given to the source."""

from __future__ import annotations

from spark_kafka_group.options.sections import DECLARED
from spark_kafka_group.options.sink_sections import SINK_DECLARED
from spark_kafka_group.options.unsupported import why_unsupported
from spark_kafka_group.options.unsupported_in_sinks import why_unsupported_in_sinks

_INSTEAD_OF_READING = {
    "subscribe": "take topic",
    "subscribepattern": "take topic, or a column topic",
    "assign": "take topic and a column partition",
    "decoder": "take encoder",
    "kafka.default.api.timeout.ms": "take kafka.max.block.ms",
    "maxbrokeroutage": "take kafka.delivery.timeout.ms",
    "partition.metadata.cache.ttl.ms": "take kafka.metadata.max.age.ms",
}
_INSTEAD_OF_WRITING = {"topic": "take subscribe", "encoder": "take decoder"}


def spelled(name: str) -> str:
    """An option's name as it is documented, as Spark hands names on in small letters; others as they are."""
    declared = DECLARED.get(name.lower()) or SINK_DECLARED.get(name.lower())
    return name if declared is None or name != name.lower() else str(declared[1].metadata["name"])


def why_of_writing(name: str) -> str | None:
    """Why the source does not take an option of the sink, or a setting of Kafka's producer; None if it is none."""
    if name.lower() not in SINK_DECLARED and why_unsupported_in_sinks(name) is None:
        return None
    return f"it is for writing, and this query reads: {_INSTEAD_OF_WRITING.get(name.lower(), 'leave it out')}"


def why_of_reading(name: str) -> str | None:
    """Why the sink does not take an option of the source, or a setting of Kafka's consumer; None if it is none."""
    if name.lower() not in DECLARED and why_unsupported(name) is None:
        return None
    return f"it is for reading, and this query writes: {_INSTEAD_OF_READING.get(name.lower(), 'leave it out')}"
