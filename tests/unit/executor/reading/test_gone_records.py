"""Which records of a task are gone, decided on values alone; tests/broker has the same on real logs."""

import pytest

from spark_kafka_group.errors import OffsetOutOfRangeError
from spark_kafka_group.executor.reading.gone_records import BELIEVED_AFTER_S, GoneRecords
from spark_kafka_group.executor.reading.stall import Stall
from spark_kafka_group.executor.writing.elections import Elected
from spark_kafka_group.values.offsets import TopicPartition

TP = TopicPartition("orders", 3)
LIMIT_S = 60.0


class Task:
    """A range from 10 to 20, by a clock that is set."""

    def __init__(self, fail):
        self.now = 0.0
        self.positions, self.ends = {TP: 10}, {TP: 20}
        self.stall = Stall(LIMIT_S, lambda: self.now, None)
        self.gone = GoneRecords(self.positions, self.ends, fail, self.stall, lambda: self.now)


@pytest.fixture
def task():
    return Task(fail=False)


def test_a_log_that_begins_later_is_read_from_its_begin_on(task):
    assert task.gone.look_at_bounds(TP, 5, 30)  # the position is there again
    assert not task.gone.look_at_bounds(TP, 15, 30)
    assert task.positions == {TP: 15}
    assert not task.gone.look_at_bounds(TP, 30, 40)
    assert task.positions == {}


def test_a_missing_partition_is_given_up_when_it_has_been_missing_for_a_while(task):
    assert task.gone.give_up_missing({TP}, set())
    task.now += BELIEVED_AFTER_S - 1
    task.gone.forget(TP)  # no broker answers meanwhile
    task.now += 2
    assert task.gone.give_up_missing({TP}, set())
    task.now += BELIEVED_AFTER_S
    assert not task.gone.give_up_missing({TP}, set())
    assert task.positions == {}


def test_an_end_of_a_log_is_believed_when_nothing_came_and_it_was_said_for_a_while(task):
    assert not task.gone.ends_for_good(TP, 10)
    task.now += LIMIT_S - 1
    assert not task.gone.ends_for_good(TP, 10)
    task.now += 1
    assert not task.gone.ends_for_good(TP, 11)
    assert not task.gone.ends_for_good(TP, 10)  # said again, and only now
    task.now += BELIEVED_AFTER_S
    assert task.gone.ends_for_good(TP, 10)


@pytest.mark.parametrize(
    ("current", "end", "positions", "range_end"),
    [
        (8, None, {TP: 10}, 20),  # a later leader that does not know the epoch
        (8, 20, {TP: 10}, 20),
        (8, 15, {TP: 10}, 15),
        (8, 5, {}, 20),
        (6, None, {}, 20),  # an earlier one, of another log
        (7, None, {TP: 10}, 20),
    ],
)
def test_a_range_goes_on_in_the_log_of_another_leader_as_far_as_that_has_it(task, current, end, positions, range_end):
    task.gone.look_at_leader(Elected(TP, 7, current, end))
    assert (task.positions, task.ends) == (positions, {TP: range_end})


def test_a_loss_is_an_error_with_the_position_unless_failondataloss_is_false():
    task = Task(fail=True)
    with pytest.raises(OffsetOutOfRangeError, match=r"orders-3: offset 10: \[KAFKA_DATA_LOSS.COULD_NOT_READ") as raised:
        task.gone.look_at_bounds(TP, 15, 30)
    assert raised.value.offset == 10
    assert task.positions == {TP: 10}


def test_a_gap_starts_the_time_without_records_again(task):
    task.now = LIMIT_S
    assert task.stall.is_over_limit(TP)
    task.gone.skip(TP, 15, "a reason")
    assert not task.stall.is_over_limit(TP)
