"""Settings of a broker that an error has to name, or that limit what this package may ask for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import kafka.errors as kafka_errors
from kafka.protocol.admin import DescribeConfigsRequest

BROKER = 4  # the resource type
SESSION_BOUNDS = ("group.min.session.timeout.ms", "group.max.session.timeout.ms")


def session_bounds(node_id: int, ask: Callable[[Any], Any]) -> tuple[int, int] | None:
    """Least and greatest session timeout that a broker takes; None where it does not say so.

    Parameters
    ----------
    ask
        Sends a request to that broker and returns its response. Its user needs DescribeConfigs on the cluster.
    """
    found = integers_of(node_id, SESSION_BOUNDS, ask)
    return None if found is None else (found[0], found[1])


def integers_of(node_id: Any, names: Sequence[str], ask: Callable[[Any], Any]) -> list[int] | None:
    """Whole numbers among a broker's settings, in the order of their names; None where it does not say them all."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=BROKER, resource_name=str(node_id), configuration_keys=list(names)
    )
    try:
        (result,) = ask(DescribeConfigsRequest(resources=[resource])).results
        values = {config.name: int(config.value) for config in result.configs}
        return [values[name] for name in names]
    except (kafka_errors.KafkaError, KeyError, TypeError, ValueError):  # the error is about something else
        return None
