"""Settings of a broker that an error has to name."""

from __future__ import annotations

from collections.abc import Callable
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
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=BROKER, resource_name=str(node_id), configuration_keys=list(SESSION_BOUNDS)
    )
    try:
        (result,) = ask(DescribeConfigsRequest(resources=[resource])).results
        values = {config.name: int(config.value) for config in result.configs}
        return values[SESSION_BOUNDS[0]], values[SESSION_BOUNDS[1]]
    except (kafka_errors.KafkaError, KeyError, TypeError, ValueError):  # the error is about something else
        return None
