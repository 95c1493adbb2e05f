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
    try:
        found = integers_of(ask(settings_request(BROKER, str(node_id))), SESSION_BOUNDS)
    except kafka_errors.KafkaError:  # the error is about something else
        return None
    return None if found is None else (found[0], found[1])


def settings_request(kind: int, name: str) -> Any:
    """A question for all settings: brokers that are not Apache's may close the connection where some are named."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    return DescribeConfigsRequest(resources=[resource])


def integers_of(answer: Any, names: Sequence[str]) -> list[int] | None:
    """Whole numbers among the settings in an answer, in the order of their names; None where it has not all."""
    values = {config.name: config.value for result in answer.results for config in result.configs}
    try:
        return [int(values[name]) for name in names]
    except (KeyError, TypeError, ValueError):
        return None
