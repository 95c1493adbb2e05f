"""Many lookups of offsets go to brokers in turns, so that each answer comes within the request's timeout."""

import pytest

from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.topic_admin import in_turns


def lookup(partitions):
    return {TopicPartition("t", partition): 0 for partition in range(partitions)}


@pytest.mark.parametrize(
    ("sizes", "turns"),
    [
        ([], []),
        ([3], [[3]]),
        ([3, 3, 4, 1], [[3, 3, 4], [1]]),
        ([11, 1, 10], [[11], [1], [10]]),
        ([1_000] * 5, [[1_000]] * 5),
    ],
)
def test_a_turn_has_so_many_partitions_and_a_larger_lookup_is_alone(sizes, turns):
    assert [[len(one) for one in turn] for turn in in_turns([lookup(size) for size in sizes], 10)] == turns
