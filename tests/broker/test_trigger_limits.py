"""How much a micro-batch takes: maxOffsetsPerTrigger, minOffsetsPerTrigger, maxTriggerDelay, availableNow."""

import functools
import itertools

import pytest
from support import name
from support.triggers import fill, send, send_anywhere

from spark_kafka_group.driver import session
from spark_kafka_group.driver.backlog.end_bounds import MinOffsets
from spark_kafka_group.errors import GroupKafkaError
from spark_kafka_group.testing import wait_until

pytestmark = pytest.mark.usefixtures("patience")

EARLIEST = {"startingOffsets": "earliest"}


def topic_holding(kafka, *values_of_partitions):
    """A new topic with these values, by partition."""
    topic = name("limits")
    kafka.create_topic(topic, partitions=len(values_of_partitions))
    fill(kafka, topic, enumerate(values_of_partitions))
    return topic


@pytest.fixture
def seconds(monkeypatch):
    """The time that maxTriggerDelay goes by; appending a number lets so many seconds pass."""
    passed = [1000.0]
    monkeypatch.setattr(session, "MinOffsets", functools.partial(MinOffsets, clock=lambda: sum(passed)))
    return passed


def test_a_limit_is_shared_as_sparks_own_source_shares_it_and_once_ignores_it(kafka, stream_of):
    topic = topic_holding(kafka, range(100, 201), range(10, 21), [1])
    limited = {"maxOffsetsPerTrigger": 10} | EARLIEST
    stream = stream_of(kafka, {"subscribe": topic}, **limited)
    assert stream.trigger() == [1, 10, *range(100, 108)]
    assert stream.trigger() == [11, *range(108, 117)]
    stream.restart()
    assert stream.trigger() == [12, *range(117, 126)]
    assert stream.trigger() == [13, *range(126, 135)]

    once = stream_of(kafka, {"subscribe": topic}, **limited)
    assert once.once() == [1, *range(10, 21), *range(100, 201)]
    send_anywhere(kafka, topic, range(1000, 1011), 3)
    once.restart()
    assert once.once() == list(range(1000, 1011))


def test_the_largest_limit_of_all_does_not_overflow(kafka, stream_of):
    topic = topic_holding(kafka, range(5))
    start = f'{{"{topic}": {{"0": 5}}}}'
    stream = stream_of(kafka, {"subscribe": topic}, startingOffsets=start, maxOffsetsPerTrigger=2**63 - 1)
    assert stream.trigger() is None
    send(kafka, topic, 0, range(30, 35))
    assert stream.trigger() == list(range(30, 35))


def test_a_batch_waits_for_its_minimum_but_not_longer_than_the_delay(kafka, stream_of, seconds):
    topic = topic_holding(kafka, range(100, 110), range(10, 15), [1])
    least = {"minOffsetsPerTrigger": 15, "maxTriggerDelay": "5s"} | EARLIEST
    stream = stream_of(kafka, {"subscribe": topic}, **least)
    assert stream.trigger() == [1, *range(10, 15), *range(100, 110)]  # the first batch of a run never waits
    send(kafka, topic, 1, range(15, 21))
    assert stream.trigger() is None
    fill(kafka, topic, {0: range(110, 121), 2: [2]})
    assert stream.trigger() == [2, *range(15, 21), *range(110, 121)]
    fill(kafka, topic, {0: range(121, 126), 1: range(21, 26)})
    seconds.append(4)
    assert stream.trigger() is None
    seconds.append(1)
    assert stream.trigger() == [*range(21, 26), *range(121, 126)]

    once = stream_of(kafka, {"subscribe": topic}, **least)
    assert once.once() == [1, 2, *range(10, 26), *range(100, 126)]
    send_anywhere(kafka, topic, range(1000, 1011), 3)
    once.restart()
    assert once.once() == list(range(1000, 1011))


def test_minimum_and_limit_go_together(kafka, stream_of, seconds):
    topic = topic_holding(kafka, range(100, 121), range(10, 21), [1])
    both = {"minOffsetsPerTrigger": 15, "maxOffsetsPerTrigger": 20, "maxTriggerDelay": "5s"} | EARLIEST
    stream = stream_of(kafka, {"subscribe": topic}, **both)
    assert stream.trigger() == [1, *range(10, 16), *range(100, 112)]
    assert stream.trigger() is None  # 14 are left
    fill(kafka, topic, {0: range(121, 129), 1: range(21, 31), 2: [2]})
    assert stream.trigger() == [2, *range(16, 25), *range(112, 122)]
    assert stream.trigger() is None  # 13 are left
    seconds.append(5)
    assert stream.trigger() == [*range(25, 31), *range(122, 129)]

    once = stream_of(kafka, {"subscribe": topic}, **both)
    assert once.once() == [1, 2, *range(10, 31), *range(100, 129)]


def test_partitions_that_are_new_count_towards_the_minimum(kafka, stream_of):
    topic = topic_holding(kafka, range(5))
    stream = stream_of(kafka, {"subscribe": topic}, minOffsetsPerTrigger=8, **EARLIEST)
    assert stream.trigger() == list(range(5))
    kafka.add_partitions(topic, 2)
    send(kafka, topic, 1, range(10, 17))
    assert stream.trigger() is None
    send(kafka, topic, 0, [5])
    assert wait_until(stream.trigger, within=30) == [5, *range(10, 17)]


def test_before_the_first_batch_there_is_no_progress_to_tell(kafka, stream_of):
    topic = topic_holding(kafka, range(3))
    stream = stream_of(kafka, {"subscribe": topic}, **EARLIEST)
    assert stream.reader.reportLatestOffset() is None
    stream.reader.initialOffset()
    assert stream.reader.reportLatestOffset() is None
    end, _ = stream.plan()
    assert stream.reader.reportLatestOffset()[topic] == {"0": 3}
    stream.restart()
    stream.reader.partitions({}, end)  # a batch that is read again: no ends have been looked up
    assert stream.reader.reportLatestOffset() is None


class TestAvailableNow:
    """15 records in one of five partitions, five a batch."""

    @pytest.fixture
    def topic(self, kafka):
        return topic_holding(kafka, range(15), [], [], [], [])

    @pytest.fixture
    def stream(self, kafka, topic, stream_of):
        return stream_of(kafka, {"subscribe": topic}, maxOffsetsPerTrigger=5, **EARLIEST)

    def test_available_now_is_three_batches_and_no_record_that_came_later(self, kafka, topic, stream):
        stream.reader.prepareForTriggerAvailableNow()
        assert stream.trigger() == list(range(5))
        send(kafka, topic, 0, range(15, 20))
        assert stream.trigger() == list(range(5, 10))
        kafka.add_partitions(topic, 6)
        send(kafka, topic, 5, [100])
        assert stream.trigger() == list(range(10, 15))
        assert stream.trigger() is None
        stream.restart()
        assert sorted(itertools.chain(*stream.available_now())) == [*range(15, 20), 100]

    @pytest.mark.parametrize(
        ("partitions", "records"), [(3, 15), (5, 10)], ids=["with fewer partitions", "with fewer records"]
    )
    def test_a_topic_that_is_recreated_meanwhile_is_an_error(self, kafka, topic, stream, partitions, records):
        stream.reader.prepareForTriggerAvailableNow()
        assert stream.trigger() == list(range(5))
        kafka.delete_topic(topic)
        kafka.create_topic(topic, partitions=partitions)
        send(kafka, topic, 0, range(records))
        with pytest.raises(GroupKafkaError, match=f"{topic}-.*deleted and made again"):
            stream.trigger()

    def test_a_batch_that_failed_is_read_again_although_partitions_were_added(self, kafka, topic, stream):
        stream.reader.prepareForTriggerAvailableNow()
        end, tasks = stream.plan()
        stream.restart()  # its tasks failed
        kafka.add_partitions(topic, 7)
        start = stream.reader.initialOffset()  # of a first batch that did not finish Spark knows no start
        stream.reader.prepareForTriggerAvailableNow()
        assert stream.reader.partitions(start, end) == tasks

    def test_a_rest_below_the_minimum_is_read(self, kafka, topic, stream_of):
        stream = stream_of(kafka, {"subscribe": topic}, minOffsetsPerTrigger=7, maxOffsetsPerTrigger=10, **EARLIEST)
        assert stream.available_now() == [list(range(10)), list(range(10, 15))]
