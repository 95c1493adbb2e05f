"""Due records of retry topics: none early, and all in the end."""

import math

from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_group.driver.backlog.retry_delays import RetryDelays
from spark_kafka_group.values.offsets import OffsetAndTimestamp, OffsetRange, TopicPartition

DELAY = 1_000
MAIN, RETRY = TopicPartition("orders", 0), TopicPartition(f"orders-retry-{DELAY}", 0)


class Log:
    """The partition of a retry topic, and a driver's knowledge of it at a time."""

    def __init__(self, *timestamps_ms):
        self.timestamps_ms = list(timestamps_ms)
        self.meanwhile = []  # comes after the end has been looked up
        self.asked = 0
        self.now_ms = 1_700_000_000_000
        self.due = RetryDelays((DELAY,), self.look_up, lambda: self.now_ms)

    def look_up(self, times_ms):
        """As ListOffsets by time."""
        self.asked += 1
        self.timestamps_ms += self.meanwhile
        self.meanwhile = []
        records = [OffsetAndTimestamp(offset, ms) for offset, ms in enumerate(self.timestamps_ms)]
        return {tp: next((r for r in records if r.timestamp_ms >= ms), None) for tp, ms in times_ms.items()}

    def read(self, start):
        """Up to which offset a batch from `start` may read."""
        ((tp, begin, end),) = self.due.due([OffsetRange(RETRY, start, len(self.timestamps_ms))])
        assert (tp, begin) == (RETRY, start)
        return end


ages = st.lists(st.integers(-DELAY, 2 * DELAY), max_size=4)


@given(st.lists(st.tuples(ages, ages, st.integers(0, DELAY)), max_size=8))
def test_no_record_is_read_early_and_every_record_is_read_in_the_end(steps):
    log, position = Log(), 0
    for before, meanwhile, passes in steps:
        log.timestamps_ms += [log.now_ms - age for age in before]
        log.meanwhile = [log.now_ms - age for age in meanwhile]
        there = len(log.timestamps_ms)
        due_ms = [ms + DELAY for ms in log.timestamps_ms]
        first_undue = next((n for n in range(position, there) if due_ms[n] > log.now_ms), None)
        position = log.read(position)
        assert position == (there if first_undue is None else first_undue)
        assert log.due.left_s() == (math.inf if first_undue is None else (due_ms[first_undue] - log.now_ms) / 1000)
        assert not log.due.passed()
        log.timestamps_ms += log.meanwhile
        log.meanwhile = []
        log.now_ms += passes
    log.now_ms += 2 * DELAY
    assert log.read(position) == len(log.timestamps_ms)


def test_nothing_is_asked_again_before_the_first_record_that_was_left_out_is_due():
    log = Log(1, 2)
    log.timestamps_ms += [log.now_ms, 3]
    assert (log.read(0), log.asked) == (2, 1)
    for _ in range(3):
        log.timestamps_ms.append(log.now_ms)
        log.now_ms += 333
        assert (log.read(2), log.asked, log.due.passed()) == (2, 1, False)
    log.now_ms += 1
    assert (log.due.passed(), log.due.left_s()) == (True, 0)
    assert (log.read(2), log.asked) == (5, 2)  # all but the last two
    assert (log.due.passed(), log.due.left_s()) == (False, 0.333)


def test_nothing_is_asked_again_while_no_record_comes_and_all_were_due():
    log = Log(1, 2)
    assert [log.read(0), log.read(1), log.read(2), log.asked] == [2, 2, 2, 1]
    log.meanwhile = [log.now_ms]
    log.timestamps_ms.append(3)
    assert (log.read(2), log.asked, log.due.left_s()) == (3, 2, math.inf)
    assert (log.read(3), log.asked, log.due.left_s()) == (3, 3, 1)


def test_a_log_that_is_shorter_than_before_or_another_one_is_asked_about_again():
    log = Log(1, 2, 3)
    assert log.read(0) == 3
    log.timestamps_ms = [1, log.now_ms]
    assert (log.read(1), log.asked) == (1, 2)
    log.timestamps_ms = [log.now_ms]
    assert (log.read(0), log.asked) == (0, 3)
    log.timestamps_ms = [1, 2]
    assert (log.read(0), log.asked) == (0, 3)
    log.due.forget([RETRY])
    assert (log.read(0), log.asked) == (2, 4)


def test_other_topics_are_always_due_and_partitions_without_an_answer_never():
    due = RetryDelays((DELAY,), lambda times_ms: {}, lambda: 0)
    other = TopicPartition(f"orders-retry-{DELAY + 1}", 0)
    ranges = [OffsetRange(MAIN, 3, 9), OffsetRange(other, 3, 9), OffsetRange(RETRY, 3, 3), OffsetRange(MAIN, 9, 3)]
    assert due.due(ranges) == ranges
    assert (
        due.due([OffsetRange(RETRY, 3, 9)])
        == due.due_as_known([OffsetRange(RETRY, 3, 9)])
        == [OffsetRange(RETRY, 3, 3)]
    )
    assert RetryDelays((), lambda times_ms: {}).due([OffsetRange(RETRY, 3, 9)]) == [OffsetRange(RETRY, 3, 9)]


def test_a_paused_retry_topic_wakes_no_trigger():
    log = Log()
    log.timestamps_ms.append(log.now_ms)
    assert (log.read(0), log.due.left_s()) == (0, 1)
    assert log.due.due([OffsetRange(RETRY, 0, 0)]) == [OffsetRange(RETRY, 0, 0)]  # paused
    assert log.due.left_s() == math.inf
    assert (log.read(0), log.asked) == (0, 2)
