"""How records that were read, and what is made of them, go to other topics of the same cluster: options of the sink
that follow from those of the source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_kafka_group.options.connection import ClientOptions, Connection
from spark_kafka_group.options.producing import Producing, Writing
from spark_kafka_group.options.sections import DECLARED
from spark_kafka_group.options.sink_options import SinkOptions
from spark_kafka_group.options.sink_sections import SINK_DECLARED
from spark_kafka_group.options.transacting import Transacting

LARGEST_REQUEST = 100 * 1024 * 1024
"""Brokers take no larger one (socket.request.max.bytes)."""
WITHOUT_END_MS = 2**31 - 1
OF_BOTH = {name for name in DECLARED if name in SINK_DECLARED and SINK_DECLARED[name][0] in ("connection", "security")}
"""Options that mean the same to source and sink."""
OF_BOTH |= {"kafka.transactional.id"}


def sink_options(options: ClientOptions, outlives: bool) -> SinkOptions:
    """For a task that writes by itself, at least once.

    Parameters
    ----------
    outlives
        Whether brokers that are away are waited for, up to maxBrokerOutage if that is set.
    """
    producing = Producing(**_differing(options.connection, outlives))
    return SinkOptions(Writing(), producing, Transacting(), options.connection, options.security)


def raw_sink_options(
    raw: Mapping[str, Any], connection: Connection, given: Mapping[str, Any], outlives: bool
) -> dict[str, Any]:
    """For Spark's writer.

    Parameters
    ----------
    raw
        The source's: those that the sink has, too, are taken over.
    connection
        Of the source.
    given
        Those that the sink alone has.
    """
    differing = _differing(connection, outlives)
    names = {field.name: field.metadata["name"] for section, field in SINK_DECLARED.values() if section == "producing"}
    shared = {name: value for name, value in raw.items() if name.lower() in OF_BOTH}
    own = {name.lower() for name in given}
    defaults = {names[field]: value for field, value in differing.items() if names[field] not in own}
    return defaults | shared | dict(given)


def _differing(connection: Connection, outlives: bool) -> dict[str, Any]:
    """Settings whose defaults are others than the sink's.

    A record that its producer compressed may be over the topics' limit without.
    """
    differing: dict[str, Any] = {"compression_type": "gzip", "max_request_size": LARGEST_REQUEST}
    if outlives:
        least_ms = connection.request_timeout_ms + Producing().linger_ms
        outage_ms = connection.max_broker_outage_ms
        wait_ms = WITHOUT_END_MS if outage_ms is None else max(outage_ms, least_ms)
        differing |= {"delivery_timeout_ms": wait_ms, "max_block_ms": wait_ms}
    return differing
