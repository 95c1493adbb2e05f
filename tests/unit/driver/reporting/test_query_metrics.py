"""How old a backlog is, by the ends of logs that were looked up."""

import pytest

from spark_kafka_group.driver.reporting.query_metrics import MOST_SEEN, BacklogAges
from spark_kafka_group.values.offsets import TopicPartition

ONE, TWO = (TopicPartition("orders", number) for number in range(2))


class TestBacklogAges:
    @pytest.fixture
    def ages(self):
        return BacklogAges()

    def test_records_between_two_looks_are_taken_to_have_come_evenly(self, ages):
        for now_ms, end in ((1000, 100), (2000, 100), (3000, 200)):
            ages.observe({ONE: end}, now_ms)
        assert [ages.since_ms(ONE, position) for position in (100, 125, 199)] == [2000, 2250, 2990]
        assert ages.since_ms(ONE, 200) is None

    def test_what_was_there_before_the_first_look_counts_from_that_look(self, ages):
        ages.observe({ONE: 100}, 1000)
        ages.observe({ONE: 300}, 5000)
        assert [ages.since_ms(ONE, position) for position in (0, 99, 100)] == [1000, 1000, 1000]
        assert ages.since_ms(ONE, 200) == 3000

    def test_a_partition_that_goes_or_whose_log_is_cut_begins_again(self, ages):
        ages.observe({ONE: 100, TWO: 100}, 1000)
        ages.observe({TWO: 50}, 2000)
        ages.observe({ONE: 100, TWO: 60}, 3000)
        assert ages.since_ms(ONE, 10) == 3000
        assert ages.since_ms(TWO, 10) == 2000

    def test_a_long_backlog_takes_bounded_memory_and_stays_exact_within_two_looks(self, ages):
        for n in range(10_000):  # ten records each second, of which none is read
            ages.observe({ONE: 10 * n}, 1000.0 * n)
        assert len(ages._seen[ONE]) <= MOST_SEEN
        assert ages.since_ms(ONE, 1234) == pytest.approx(123_400, abs=1000)
