"""Groups as the offsets topic has them: their newest generation, and groups that cannot be shown.

A group cannot be shown if it has no coordinator, the leader of its partition of that topic, or is of another type. Each
partition of the topic is read once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from spark_kafka_group.errors import BrokerError
from spark_kafka_group.offsets_topic import decoding
from spark_kafka_group.offsets_topic.decoding import OFFSETS_TOPIC, GenerationEntry, GroupRemoved
from spark_kafka_group.text.foreign_text import listed
from spark_kafka_group.tools.arguments import ToolError
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.admin import BrokerNode, GroupAdmin

TOOLS = {"share": "kafka-share-groups", "streams": "kafka-streams-groups"}
"""Kafka's own tools for groups that are not of consumers."""
NOT_SHOWN = (
    f"the cluster shows no topic {OFFSETS_TOPIC}: its brokers are not Apache Kafka's, or this user lacks the ACL "
    f"operation Describe on the topic"
)


def led(leaders: Mapping[TopicPartition, BrokerNode | None], group: str) -> tuple[TopicPartition, BrokerNode]:
    """The partition that has a group's records, and its leader. Raises ToolError when it has none."""
    tp = TopicPartition(OFFSETS_TOPIC, decoding.coordinator_partition(group, len(leaders)))
    leader = leaders[tp]
    if leader is None:
        raise ToolError(f"{tp} has no leader, so group {group} has no coordinator: start the brokers that hold it")
    return tp, leader


def require_coordinator(admin: GroupAdmin, group: str) -> None:
    """Look, before brokers are asked for a group, whether one answers. Raises ToolError when none does."""
    leaders = _leaders(admin)
    if leaders:
        led(leaders, group)


def of_no_consumers(group: str, use: str, doing: str) -> str:
    """An error's text about a group that is not of consumers, with Kafka's tool that does it."""
    other = f"take {TOOLS[use]} {doing}" if use in TOOLS else "the command offsets shows its records"
    return f"group {group} is a {use} group, and not one of consumers: {other}"


def groups_not_shown(admin: GroupAdmin) -> str | None:
    """Which groups a list of all groups of consumers lacks, and why."""
    others = sorted(admin.other_groups().items())
    named = listed([f"{group} ({use})" for group, use in others])
    tools = sorted({TOOLS[use] for _, use in others if use in TOOLS})
    shown_by = f"; {' and '.join(tools)} show them" if tools else ""
    text = f"groups that are not of consumers are not shown: {named}{shown_by}" if others else None
    return "; ".join(filter(None, [missing_groups(admin), text])) or None


def missing_groups(admin: GroupAdmin) -> str | None:
    """Why a list of all groups may lack some: brokers list those that they coordinate."""
    leaders = _leaders(admin)
    away = [tp for tp, leader in leaders.items() if leader is None]
    if not away:
        return None
    return (
        f"{len(away)} of {len(leaders)} partitions of {OFFSETS_TOPIC} have no leader, so groups of these have no "
        f"coordinator, and are not shown: start the brokers that are away"
    )


def _leaders(admin: GroupAdmin) -> Mapping[TopicPartition, BrokerNode | None]:
    """Of the offsets topic; empty where it cannot be looked up, as without the right to describe it."""
    try:
        return admin.leaders([OFFSETS_TOPIC])
    except BrokerError:
        return {}


def newest(admin: GroupAdmin, groups: Iterable[str]) -> dict[str, int | BrokerError]:
    """Number of each group's newest generation, or the error that hides it; groups without one are left out."""
    groups = list(groups)
    if not groups:
        return {}
    together: defaultdict[TopicPartition, list[str]] = defaultdict(list)
    found: dict[str, int | BrokerError] = {}
    try:
        leaders = admin.leaders([OFFSETS_TOPIC])
        if not leaders:
            return {groups[0]: BrokerError(f"{NOT_SHOWN}. No group has a generation here")}
        for group in groups:
            tp = TopicPartition(OFFSETS_TOPIC, decoding.coordinator_partition(group, len(leaders)))
            if leaders[tp] is None:  # since the group was described, when it had a coordinator
                found[group] = BrokerError(f"{tp} has no leader")
            else:
                together[tp].append(group)
        ranges = admin.log_ranges(list(together))
    except BrokerError as error:
        return dict.fromkeys(groups, error)
    for tp, those in together.items():
        try:
            read = _read(admin, tp, *ranges[tp])
            found |= {group: read[group] for group in those if group in read}
        except BrokerError as error:
            found |= dict.fromkeys(those, error)
    return found


def _read(admin: GroupAdmin, tp: TopicPartition, start: int, end: int) -> dict[str, int]:
    generations: dict[str, int] = {}
    for record in admin.read(tp, start, end):
        match decoding.decode(record.key, record.value):
            case GenerationEntry(group=group, generation=generation):
                generations[group] = generation
            case GroupRemoved(group=group):
                generations.pop(group, None)
    return generations
