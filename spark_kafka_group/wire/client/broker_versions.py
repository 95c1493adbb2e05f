"""Whether a broker is new enough to be read from."""

from __future__ import annotations

from typing import Any

from kafka.protocol.consumer import FetchRequest

from spark_kafka_group.wire.fetch.response import IDS_FROM, VERSIONS


def why_not(broker: Any) -> str | None:
    """Why a broker cannot be read from, by the versions of requests that it takes; None if it can.

    Fetch 4 came with the record format that has headers, with Kafka 0.11, together with lookups that make no topic.

    `broker`: kafka-python's BrokerVersionData.
    """
    oldest, newest = broker.api_versions.get(FetchRequest.API_KEY, (VERSIONS[0], VERSIONS[-1]))
    if newest < VERSIONS[0]:
        return f"this broker is Kafka {broker.broker_version_str}, and 0.11 or newer is needed"
    if oldest >= IDS_FROM:  # topics whose ids are not known are fetched by name
        return (
            f"this broker takes requests Fetch {oldest} to {newest}, and this version of spark_kafka_group sends "
            f"{VERSIONS[0]} to {IDS_FROM - 1}: a newer one is needed"
        )
    return None
