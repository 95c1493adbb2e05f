"""The sections of the sink's options, and where each option is by its name."""

from __future__ import annotations

import dataclasses
from typing import Any

from spark_kafka_group.options.connection import Connection
from spark_kafka_group.options.option import Section
from spark_kafka_group.options.producing import Producing, Writing
from spark_kafka_group.options.security import Security
from spark_kafka_group.options.transacting import Transacting

SINK_SECTIONS: dict[str, type[Section]] = {
    "writing": Writing, "producing": Producing, "transacting": Transacting, "connection": Connection,
    "security": Security,
}  # fmt: skip
OF_READING_ONLY = frozenset({"maxBrokerOutage", "kafka.default.api.timeout.ms", "partition.metadata.cache.ttl.ms"})
"""Options of connections that mean nothing to a sink: a task waits by the settings of Kafka's producer."""


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
