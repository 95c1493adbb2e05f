"""Settings of Kafka's producers that cannot mean anything here, and why."""

from __future__ import annotations

from spark_kafka_group.options.unsupported import OF_CLIENTS, why_among

_NO_SERIALIZERS = (
    "key and value are string or binary columns: turn other types into these with Spark, "
    "as in df.selectExpr('to_json(struct(*)) as value')"
)
_ANY_RACK = "rows go to leaders in any rack, and equal shares of those without a key to each partition: leave it out"
_EQUAL_SHARES = "partitions that have a leader get equal shares of the rows without a key: leave it out"

UNSUPPORTED_IN_SINKS = {
    **OF_CLIENTS,
    "kafka.key.serializer": _NO_SERIALIZERS,
    "kafka.value.serializer": _NO_SERIALIZERS,
    "kafka.interceptor.classes": "these are Java classes: change rows with Spark before they are written",
    "kafka.partitioner.class": "it is a Java class: give the rows a column partition",
    "kafka.partitioner.adaptive.partitioning.enable": _EQUAL_SHARES,
    "kafka.partitioner.availability.timeout.ms": _EQUAL_SHARES,
    "kafka.partitioner.rack.aware": _ANY_RACK,
    "kafka.client.rack": _ANY_RACK,
    "kafka.buffer.memory.allocation.strategy": (
        "memory is taken as rows come, which Java's producer calls incremental: leave it out"
    ),
    "kafka.retries": "a record batch is sent again until kafka.delivery.timeout.ms is over: take that",
    "kafka.metadata.max.idle.ms": "a worker process keeps what it knows of a topic: leave it out",
    "kafka.metric.reporters": "these are Java classes: the query's progress has the number of rows written",
    "kafka.transaction.two.phase.commit.enable": (
        "brokers need not wait for another system: the query's own decision is in Kafka. Leave it out"
    ),
}
"""Settings that a sink does not have: by their names in lower case, and the reason, which has the advice."""


def why_unsupported_in_sinks(name: str) -> str | None:
    """Why a setting of Kafka's is refused; None if it is none, or none that is known. With or without ``kafka.``."""
    return why_among(UNSUPPORTED_IN_SINKS, name)
