"""All groups of consumers of a cluster at once, in few round trips."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import kafka.errors as kafka_errors
from kafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest

from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.group.members import CLASSIC, CONSUMER, DEAD, ConsumerGroupDescribeRequest, use_of
from spark_kafka_group.wire.group.membership import Committed
from spark_kafka_group.wire.group.offset_requests import fetch_request, fetched, partitions_of

UNDER_WAY = 4  # requests to a node at a time: kafka-python takes no more than five
AT_ONCE = 100  # groups of one request


@dataclass(frozen=True)
class GroupOffsets:
    """A group of consumers: its state in Kafka's word, its number of members, and everything that it has committed."""

    state: str
    members: int
    committed: Mapping[TopicPartition, Committed]


async def group_offsets(manager: Any) -> dict[str, GroupOffsets]:
    """Each group of consumers whose coordinator is known now. Raises KafkaError, retriable where that may pass."""
    found: dict[str, GroupOffsets] = {}
    for node_id in [broker.node_id for broker in manager.cluster.brokers()]:
        listed = checked(await manager.send(ListGroupsRequest(), node_id=node_id)).groups
        states = await _states(manager, node_id, [one for one in listed if listed_use(one) == CONSUMER])
        for group, committed in (await _all_committed(manager, node_id, list(states))).items():
            found[group] = GroupOffsets(*states[group], committed)
    return found


def kind_of(listed: Any) -> str:
    """The kind of a listed group. Brokers before Kafka 3.8 know one kind and do not say it."""
    return (getattr(listed, "group_type", None) or CLASSIC).lower()


def listed_use(listed: Any) -> str:
    """What uses a listed group, as :attr:`DescribedGroup.use`."""
    return use_of(kind_of(listed), listed.protocol_type)


def is_of_others(listed: Any | None) -> bool:
    """Whether a listed group is not one of consumers; None for a group that is not listed."""
    return listed is not None and listed_use(listed) != CONSUMER


def becomes_free(listed: Any) -> bool:
    """Whether consumers can use a listed group once it is empty: such as Connect's, and neither share nor streams."""
    return kind_of(listed) in (CLASSIC, CONSUMER)


def why_not_for_consumers(listed: Any) -> str:
    """Why consumers cannot join a listed group of others, and what to do."""
    even = "" if becomes_free(listed) else ", not even while it is empty"
    return f"it is a {listed_use(listed)} group, which consumers cannot join{even}: take another kafka.group.id"


async def _states(manager: Any, node_id: int, listed: Iterable[Any]) -> dict[str, tuple[str, int]]:
    """State and number of members of each group, without those that are gone."""
    named: dict[str, list[str]] = {}
    for one in listed:
        named.setdefault(kind_of(one), []).append(one.group_id)
    requests = [DescribeGroupsRequest(groups=part) for part in _parts(named.get(CLASSIC, []))]
    requests += [ConsumerGroupDescribeRequest(group_ids=part) for part in _parts(named.get(CONSUMER, []))]
    responses = await _sent(manager, node_id, requests)
    groups = [group for response in responses for group in response.groups if not group.error_code]
    return {group.group_id: (group.group_state, len(group.members)) for group in groups if group.group_state != DEAD}


async def _all_committed(
    manager: Any, node_id: int, groups: Sequence[str]
) -> dict[str, dict[TopicPartition, Committed]]:
    responses = await _sent(manager, node_id, [fetch_request(group, None, stable=False) for group in groups])
    return {group: _committed(response) for group, response in zip(groups, responses, strict=True)}


def _committed(response: Any) -> dict[TopicPartition, Committed]:
    return {
        tp: Committed(p.committed_offset, p.metadata or "")
        for tp, p in partitions_of(fetched(response))
        if not p.error_code and p.committed_offset >= 0
    }


async def _sent(manager: Any, node_id: int, requests: Sequence[Any]) -> list[Any]:
    """Responses to requests of one node, some of which are on their way at a time."""
    responses: list[Any] = []
    for part in _parts(requests, UNDER_WAY):
        responses += [await answer for answer in [manager.send(request, node_id=node_id) for request in part]]
    return responses


def _parts(whole: Sequence[Any], size: int = AT_ONCE) -> Iterator[Sequence[Any]]:
    return (whole[start : start + size] for start in range(0, len(whole), size))


def checked(response: Any) -> Any:
    """A response that is no error as a whole; raises kafka-python's error if it is one."""
    code = getattr(response, "error_code", 0)
    if code:
        raise kafka_errors.for_code(code)(getattr(response, "error_message", None) or "")
    return response
