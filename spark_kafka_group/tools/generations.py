"""The newest generation of groups, which only the offsets topic knows. Each of its partitions is read once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from spark_kafka_group.errors import BrokerError
from spark_kafka_group.offsets_topic import decoding
from spark_kafka_group.offsets_topic.decoding import OFFSETS_TOPIC, GroupGeneration, GroupRemoved
from spark_kafka_group.tools.coordinators import NOT_SHOWN
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.admin import GroupAdmin


def newest(admin: GroupAdmin, groups: Iterable[str]) -> dict[str, int | BrokerError]:
    """Number of each group's newest generation, or the error for which it is not known; groups without one are left
    out."""
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
            case GroupGeneration(group=group, generation=generation):
                generations[group] = generation
            case GroupRemoved(group=group):
                generations.pop(group, None)
    return generations
