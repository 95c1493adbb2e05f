"""What a group shows of the member under an instance id (KIP-345)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka.protocol.admin.groups import DescribeGroupsRequest
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from spark_kafka_group.wire.subscription import UNREADABLE


def static_member(group_id: str, instance_id: str, ask: Callable[[Any], Any]) -> Any:
    """The member under `instance_id` as its coordinator describes it; None without one.

    Parameters
    ----------
    ask
        Sends a request to the coordinator and returns the response.
    """
    (group,) = ask(DescribeGroupsRequest(groups=[group_id])).groups
    return next((member for member in group.members if member.group_instance_id == instance_id), None)


def topics_of(member: Any) -> frozenset[str] | None:
    """What a described member subscribes to; None when that is not shown, as while the group rebalances."""
    if member is None or not member.member_metadata:
        return None
    try:
        return frozenset(ConsumerProtocolSubscription.decode(member.member_metadata).topics)
    except UNREADABLE:
        return None
