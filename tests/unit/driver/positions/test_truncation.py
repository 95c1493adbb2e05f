"""Whether positions are valid, by the ends of logs and of leader epochs."""

import pytest

from spark_kafka_group.driver.positions.truncation import LeaderEpochs, Look, judged
from spark_kafka_group.values.commit_metadata import commit_metadata
from spark_kafka_group.values.offsets import GroupOffset, OffsetRange, ReadTask, TopicPartition
from spark_kafka_group.wire import Committed

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
AT = {A: 20}
LONGER, SHORTER = {A: 25}, {A: 13}
NOTE = commit_metadata("another", 3, 8)


@pytest.mark.parametrize(("ends", "known", "epoch_ends", "found"), [
    pytest.param(LONGER, {A: 7}, {}, {}, id="the same leader"),
    pytest.param(LONGER, {}, {}, {}, id="a position without an epoch"),
    pytest.param(LONGER, {A: 5}, {A: 20}, {}, id="a later leader that has all of it"),
    pytest.param(LONGER, {A: 5}, {A: 23}, {}, id="a later leader that has more of it"),
    pytest.param(LONGER, {A: 5}, {A: 10}, {"diverged": {A: 10}}, id="lost, and grown again"),
    pytest.param(SHORTER, {A: 5}, {A: 10}, {"diverged": {A: 10}}, id="lost"),
    pytest.param(LONGER, {A: 5}, {A: None}, {}, id="a later leader that does not know"),
    pytest.param(SHORTER, {A: 5}, {A: None}, {"behind": {A}}, id="shorter, and a leader that does not know"),
    pytest.param(SHORTER, {}, {}, {"behind": {A}}, id="shorter, without an epoch"),
    pytest.param(SHORTER, {A: 7}, {}, {"behind": {A}}, id="shorter under the same leader"),
    pytest.param(LONGER, {A: 9}, {}, {"replaced": {A}}, id="a leader of before"),
    pytest.param(SHORTER, {A: 9}, {}, {"replaced": {A}}, id="a leader of before, shorter"),
])  # fmt: skip
def test_a_position_is_believed_unless_its_epoch_ends_before_it(ends, known, epoch_ends, found):
    assert judged(AT, ends, {A: 7}, known, epoch_ends) == Look(ends, {A: 7}, **found)


def test_a_partition_that_got_another_leader_during_the_look_is_looked_at_again():
    found = judged({A: 20, B: 20}, {A: 25, B: 25}, {A: 7, B: 7}, {A: 5, B: 7}, {})
    assert found == Look({B: 25}, {B: 7}, unsettled=frozenset({A}))
    assert found.doubtful


def test_logs_of_brokers_without_epochs_are_judged_by_their_ends():
    assert judged(AT, LONGER, {}, {A: 5}, {}) == Look(LONGER)
    assert judged(AT, SHORTER, {}, {A: 5}, {}) == Look(SHORTER, behind=frozenset({A}))


@pytest.mark.parametrize(("position", "committed", "epoch"), [
    (20, {}, {A: 5}),
    (20, {A: Committed(20, NOTE, 7)}, {A: 7}),
    (20, {A: Committed(20, "", 7)}, {A: 5}),
    (20, {A: Committed(20, NOTE)}, {A: 5}),
    (20, {A: Committed(30, NOTE, 7)}, {A: 5}),
    (30, {A: Committed(30, NOTE, 7)}, {A: 7}),
    (30, {A: Committed(30, NOTE)}, {}),
    (30, {A: Committed(30, "", 7)}, {}),
    (0, {}, {}),
])  # fmt: skip
def test_a_position_that_is_taken_has_the_epoch_of_who_gave_it(position, committed, epoch):
    checkpoint = GroupOffset(AT, "r", epochs={A: 5})
    epochs = LeaderEpochs(checkpoint)
    epochs.taken({A: position}, checkpoint, committed, lambda tp: False)
    assert epochs.select([A, B]) == epoch


def test_what_the_checkpoint_says_of_a_topic_that_was_made_again_does_not_hold():
    checkpoint = GroupOffset({A: 0}, "r", epochs={A: 5})
    epochs = LeaderEpochs(checkpoint)
    epochs.taken({A: 0}, checkpoint, {}, lambda tp: True)
    assert epochs.known == {}


def test_a_task_has_the_epochs_that_are_known():
    ranges = (OffsetRange(A, 0, 5), OffsetRange(B, 0, 5))
    assert ReadTask.under({B: 3}, {}, ranges).leader_epochs == {B: 3}
    assert ReadTask.under({}, {}, ranges) == ReadTask(ranges)
