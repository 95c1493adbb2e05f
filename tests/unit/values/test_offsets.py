"""The JSON that Spark keeps in a checkpoint."""

import pytest

from spark_kafka_group.errors import OffsetFormatError
from spark_kafka_group.values.offsets import GroupOffset, OffsetRange, TopicPartition, positions_from_json

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def test_an_offset_survives_json_and_has_the_documented_shape():
    offset = GroupOffset({ORDERS_1: 80, ORDERS_0: 120}, "r", 7, 3, {"orders": "Xk2f"}, {ORDERS_1: 40})
    assert offset.to_json() == {
        "orders": {"0": 120, "1": 80},
        "@group": {
            "reader": "r",
            "generation": 7,
            "batch": 3,
            "topics": {"orders": "Xk2f"},
            "from": {"orders": {"1": 40}},
        },
    }
    assert GroupOffset.from_json(offset.to_json()) == offset


def test_partitions_that_are_not_owned_any_more_are_kept_apart():
    offset = GroupOffset({ORDERS_0: 120}, "r", 7, left={ORDERS_1: 80})
    assert offset.to_json() == {
        "orders": {"0": 120},
        "@group": {"reader": "r", "generation": 7, "left": {"orders": {"1": 80}}},
    }
    assert GroupOffset.from_json(offset.to_json()) == offset


def test_leader_epochs_are_kept_where_they_are_known():
    offset = GroupOffset({ORDERS_0: 120, ORDERS_1: 80}, "r", 7, epochs={ORDERS_1: 5})
    assert offset.to_json()["@group"] == {"reader": "r", "generation": 7, "epochs": {"orders": {"1": 5}}}
    assert GroupOffset.from_json(offset.to_json()) == offset


def test_equal_offsets_have_equal_text_whatever_the_order_of_partitions():
    one = GroupOffset({ORDERS_0: 1, ORDERS_1: 2}, "r", 1)
    other = GroupOffset({ORDERS_1: 2, ORDERS_0: 1}, "r", 1)
    assert str(one.to_json()) == str(other.to_json())


def test_an_offset_of_sparks_own_kafka_source_is_read():
    assert GroupOffset.from_json({"orders": {"0": 5}}) == GroupOffset({ORDERS_0: 5})


def test_a_batch_starts_at_the_previous_end_except_where_from_says_otherwise():
    previous = GroupOffset({ORDERS_0: 100, ORDERS_1: 60}, "r", 6)
    offset = GroupOffset({ORDERS_0: 120, ORDERS_1: 80}, "r", 7, moved={ORDERS_1: 40})
    assert offset.ranges(previous) == [OffsetRange(ORDERS_0, 100, 120), OffsetRange(ORDERS_1, 40, 80)]


def test_a_partition_that_was_lost_is_not_part_of_the_batch():
    previous = GroupOffset({ORDERS_0: 100, ORDERS_1: 60}, "r", 6)
    assert GroupOffset({ORDERS_0: 120}, "r", 7).ranges(previous) == [OffsetRange(ORDERS_0, 100, 120)]


def test_a_batch_without_a_start_is_refused():
    with pytest.raises(OffsetFormatError, match="orders-1: the checkpoint says where the batch ends but not where"):
        GroupOffset({ORDERS_1: 3}, "r", 1).ranges(GroupOffset())


def test_over_a_gap_only_starts_that_the_batch_keeps_count():
    before = GroupOffset({ORDERS_0: 100, ORDERS_1: 60}, "r", 3, batch=3)
    whole = GroupOffset({ORDERS_0: 120, ORDERS_1: 80}, "r", 7, batch=5, moved={ORDERS_0: 110, ORDERS_1: 70})
    assert whole.ranges(before) == [OffsetRange(ORDERS_0, 110, 120), OffsetRange(ORDERS_1, 70, 80)]
    part = GroupOffset({ORDERS_0: 120, ORDERS_1: 80}, "r", 7, batch=5, moved={ORDERS_0: 110})
    with pytest.raises(OffsetFormatError, match="orders-1: the checkpoint lacks the ends of batches 4 to 4"):
        part.ranges(before)


def test_over_a_gap_a_partition_that_stands_where_it_stood_has_nothing_to_read():
    before = GroupOffset({ORDERS_0: 100, ORDERS_1: 60}, "r", 3, batch=3)
    after = GroupOffset({ORDERS_0: 120, ORDERS_1: 60}, "r", 7, batch=5, moved={ORDERS_0: 110})
    assert after.ranges(before) == [OffsetRange(ORDERS_0, 110, 120)]


def test_an_offset_of_a_newer_version_is_refused_and_named():
    with pytest.raises(OffsetFormatError, match="offset format 9 .*reads format 1"):
        GroupOffset.from_json({"@group": {"version": 9, "reader": "r", "generation": 1}})


@pytest.mark.parametrize(
    "broken",
    [
        [],
        "12",
        {"orders": 3},
        {"orders": {"x": 1}},
        {"orders": {"0": "1"}},
        {"orders": {"0": True}},
        {"orders": {"0": -3}},
        {"@group": 1},
        {"@group": {"reader": "r"}},
        {"@group": {"reader": "r", "generation": 1, "extra": 1}},
        {"@group": {"reader": "r", "generation": 1, "batch": -13}},
        {"@group": {"reader": "r", "generation": 1, "from": {"orders": 1}}},
    ],
)
def test_what_is_no_offset_is_refused(broken):
    with pytest.raises(OffsetFormatError):
        GroupOffset.from_json(broken)


@pytest.mark.parametrize("other", [3, [1, 2], {"logOffset": 4}, {"shards": {"a": "b"}}])
def test_the_checkpoint_of_a_source_of_another_kind_is_named_as_the_likely_cause(other):
    with pytest.raises(OffsetFormatError, match=r"of another kind .* give this query a checkpointLocation of its own$"):
        GroupOffset.from_json(other)


def test_the_error_about_an_offset_names_what_was_read():
    with pytest.raises(OffsetFormatError, match="startingOffsets: 'x' is not an offset of orders-0"):
        positions_from_json({"orders": {"0": "x"}}, "startingOffsets")
