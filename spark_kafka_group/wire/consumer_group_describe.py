"""ConsumerGroupDescribe (KIP-848), for which kafka-python has no schema: Kafka's own is in the files of these names."""

from __future__ import annotations

from kafka.protocol.api_message import ApiMessage


class ConsumerGroupDescribeRequest(ApiMessage, load_json=__package__):  # type: ignore[call-arg, misc]
    """For groups of the newer protocol, and for those with members of both."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=__package__):  # type: ignore[call-arg, misc]
    """Its members say their partitions by name; to a client that may not see one of their topics, nothing."""
