"""Durations of requests: average and maximum of a while."""

from spark_kafka_group.values.timing import Timing


def test_average_and_maximum_are_of_this_window_and_the_one_before():
    timing = Timing()
    assert (timing.avg_ms(0), timing.max_ms(0), timing.ago_s(0)) == (None, None, None)
    for now_s, duration_ms in ((0, 90), (1, 30), (35, 10), (40, 20)):
        timing.record(duration_ms, now_s)
    assert (timing.avg_ms(40), timing.max_ms(40), timing.ago_s(42)) == (37.5, 90, 2)
    assert (timing.avg_ms(61), timing.max_ms(61)) == (15, 20)
    assert (timing.avg_ms(100), timing.max_ms(100)) == (None, None)
    assert (timing.count, timing.total_ms, timing.last_ms) == (4, 150, 20)
