"""The ranges of a batch read: offsets, timestamps, their order, and the parts of its tasks."""

import contextlib
import json
import logging
import re

import pytest
from support import Record, name, numbered, options, produce, topic_with
from support.triggers import FIRST, batch, batch_values, by_partition, cuts, fill, send, send_anywhere

from spark_kafka_group.driver import batch_read as plan
from spark_kafka_group.errors import BrokerTimeoutError, DataLossError, GroupKafkaError
from spark_kafka_group.options import Options
from spark_kafka_group.testing import wait_until
from spark_kafka_group.values.offsets import OffsetRange, TopicPartition
from spark_kafka_group.wire import LogClient

TIMES = [FIRST, FIRST + 1000, FIRST + 2000, FIRST + 3000]
NEVER = 2**63 - 1


def settings(kafka, topic, **more):
    return {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic} | {
        option: str(value) for option, value in more.items()
    }


def values(kafka, topic, **more):
    return batch_values(settings(kafka, topic, **more))


def ranges(kafka, topic, **more):
    return cuts(batch(settings(kafka, topic, **more))[1])


@pytest.fixture
def three(kafka):
    """0 to 9, 10 to 19 and 20 in three partitions."""
    topic = name("batch")
    kafka.create_topic(topic, partitions=3)
    fill(kafka, topic, enumerate([range(10), range(10, 20), [20]]))
    return topic


@pytest.fixture(scope="module")
def timed(kafka):
    """0 to 29, dealt to three partitions; ten at each of three times."""
    topic = name("batch")
    kafka.create_topic(topic, partitions=3)
    decades = [(range(10 * n, 10 * n + 10), timestamp) for n, timestamp in enumerate(TIMES[:3])]
    fill(
        kafka,
        topic,
        {(p, timestamp): [n for n in decade if n % 3 == p] for decade, timestamp in decades for p in range(3)},
    )
    return topic


def at(topic, *timestamps):
    """One timestamp for each of three partitions."""
    return by_partition(topic, dict(enumerate(timestamps * 3 if len(timestamps) == 1 else timestamps)))


@pytest.mark.parametrize("ends", [{}, {"startingOffsets": "earliest", "endingOffsets": "latest"}])
def test_a_batch_read_goes_from_the_first_records_to_the_last_by_default(kafka, three, ends):
    assert values(kafka, three, **ends) == list(range(21))
    send(kafka, three, 2, range(21, 30))
    assert values(kafka, three, **ends) == list(range(30))


def test_a_batch_read_goes_between_offsets_of_each_partition(kafka, three):
    ends = {
        "startingOffsets": by_partition(three, {0: -2, 1: -2, 2: 0}),
        "endingOffsets": by_partition(three, {0: -1, 1: -1, 2: 1}),
    }
    assert values(kafka, three, **ends) == list(range(21))
    send(kafka, three, 2, range(31, 40))
    assert values(kafka, three, **ends) == list(range(21))
    send(kafka, three, 1, range(21, 31))
    assert values(kafka, three, **ends) == list(range(31))


def test_headers_are_read_and_none_where_there_are_none(kafka):
    topic = name("batch")
    kafka.create_topic(topic, partitions=3)
    headers = [(), (("a", b"b"), ("c", b"d")), (("e", b"f"), ("e", b"g"))]
    produce(kafka, topic, [Record(n, None, b"%d" % (n + 1), given) for n, given in enumerate(headers)])
    reader, tasks = batch(settings(kafka, topic, includeHeaders="true"))
    rows = [row for task in tasks for found in reader.read(task) for row in found.to_pylist()]
    assert {int(row["value"]): row["headers"] for row in rows} == {
        n + 1: [{"key": key, "value": value} for key, value in given] or None for n, given in enumerate(headers)
    }


class TestTimestamps:
    def test_timestamps_of_each_partition_are_start_and_end(self, kafka, timed):
        ends = {"startingOffsetsByTimestamp": at(timed, TIMES[1]), "endingOffsetsByTimestamp": at(timed, TIMES[2])}
        assert values(kafka, timed, **ends) == list(range(10, 20))

    def test_a_start_by_timestamp_goes_with_an_end_by_offset(self, kafka, timed):
        ends = {
            "startingOffsetsByTimestamp": at(timed, TIMES[0]),
            "endingOffsets": by_partition(timed, {0: -1, 1: -1, 2: 1}),
        }
        assert values(kafka, timed, **ends) == sorted([*(n for n in range(30) if n % 3 != 2), 2])

    def test_an_end_by_timestamp_goes_with_a_start_by_offset(self, kafka, timed):
        ends = {
            "startingOffsets": by_partition(timed, {0: -2, 1: -2, 2: 0}),
            "endingOffsetsByTimestamp": at(timed, TIMES[2]),
        }
        assert values(kafka, timed, **ends) == list(range(20))

    def test_timestamps_may_be_of_one_side_only(self, kafka, timed):
        assert values(kafka, timed, startingOffsetsByTimestamp=at(timed, TIMES[1])) == list(range(10, 30))
        assert values(kafka, timed, endingOffsetsByTimestamp=at(timed, TIMES[2])) == list(range(20))

    def test_one_timestamp_holds_for_all_partitions(self, kafka, timed):
        assert values(kafka, timed, startingTimestamp=TIMES[1], endingTimestamp=TIMES[2]) == list(range(10, 20))

    def test_one_timestamp_wins_over_those_of_each_partition_and_both_over_offsets(self, kafka, timed):
        given = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": at(timed, TIMES[1])}
        assert values(kafka, timed, **given) == list(range(10, 30))
        assert values(kafka, timed, **given, startingTimestamp=TIMES[2]) == list(range(20, 30))

    def test_a_start_later_than_every_record_is_an_error_or_the_end(self, kafka, timed):
        late = {"startingOffsetsByTimestamp": at(timed, TIMES[1], TIMES[1], NEVER)}
        with pytest.raises(GroupKafkaError, match=f"{timed}-2.*{NEVER}|{NEVER}.*{timed}-2"):
            values(kafka, timed, **late)
        found = values(kafka, timed, **late, startingOffsetsByTimestampStrategy="latest")
        assert found == [n for n in range(10, 30) if n % 3 != 2]

    def test_an_end_later_than_every_record_is_the_end(self, kafka, timed):
        late = {"endingOffsetsByTimestamp": at(timed, TIMES[1], TIMES[1], NEVER)}
        assert values(kafka, timed, **late) == sorted([*range(10), *(n for n in range(10, 30) if n % 3 == 2)])

    @pytest.mark.parametrize("count", [2, 4])
    @pytest.mark.parametrize("side", ["starting", "ending"])
    def test_timestamps_must_be_given_for_the_partitions_there_are(self, kafka, timed, side, count):
        some = {f"{side}OffsetsByTimestamp": at(timed, *[FIRST] * count)}
        with pytest.raises(GroupKafkaError, match=f"{side}OffsetsByTimestamp .*{timed}-{2 if count == 2 else 3}"):
            values(kafka, timed, **some)


class TestStartAndEnd:
    """A start and an end that do not go together."""

    def test_start_and_end_name_the_same_partitions(self, kafka, three):
        ends = {
            "startingOffsets": by_partition(three, dict.fromkeys(range(3), 1)),
            "endingOffsets": by_partition(three, dict.fromkeys(range(2), 1)),
        }
        with pytest.raises(GroupKafkaError, match=f"{three}-2"):
            values(kafka, three, **ends)

    def test_the_start_is_not_after_the_end(self, kafka, three):
        ends = {
            "startingOffsets": by_partition(three, dict.fromkeys(range(3), 1)),
            "endingOffsets": by_partition(three, dict.fromkeys(range(3), 0)),
        }
        with pytest.raises(GroupKafkaError, match=rf"{three}-0.*\b1\b.*\b0\b"):
            values(kafka, three, **ends)

    def test_the_start_is_not_after_an_end_that_had_to_be_looked_up(self, kafka, timed):
        ends = {"startingOffsets": by_partition(timed, dict.fromkeys(range(3), 9)), "endingTimestamp": TIMES[1]}
        with pytest.raises(GroupKafkaError, match=rf"{timed}-0.*\b9\b.*\b4\b"):
            values(kafka, timed, **ends)

    @pytest.mark.parametrize("loss", ["true", "false"])
    def test_the_start_is_not_after_the_end_of_the_log(self, kafka, loss):
        topic = topic_with(kafka, [], partitions=3)
        start = by_partition(topic, dict.fromkeys(range(3), 1))
        with pytest.raises(GroupKafkaError, match=rf"{topic}-0.*\b1\b.*\b0\b"):
            values(kafka, topic, startingOffsets=start, failOnDataLoss=loss)

    def test_an_end_that_the_log_has_lost_is_a_loss_also_where_the_start_is_beyond_it(self, kafka, three, caplog):
        ends = {
            "startingOffsets": by_partition(three, {0: 60, 1: 5, 2: 0}),
            "endingOffsets": by_partition(three, {0: 100, 1: 90, 2: 1}),
        }
        message = rf"COULD_NOT_READ_OFFSET_RANGE\b.*{three}-0: the read must end at 100, and the log ends at 10"
        with pytest.raises(DataLossError, match=f"{message}.*Set failOnDataLoss=false"):
            values(kafka, three, **ends)
        assert ranges(kafka, three, **ends, failOnDataLoss="false") == [(1, 5, 10), (2, 0, 1)]
        assert re.search(message, caplog.text)

    @pytest.mark.parametrize("side", ["starting", "ending"])
    def test_offsets_name_every_partition_there_is_and_no_other(self, kafka, three, side):
        for partitions, message in ((range(2), f"{three}-2"), (range(4), f"{three}-3")):
            offsets = by_partition(three, dict.fromkeys(partitions, 1))
            with pytest.raises(GroupKafkaError, match=f"{side}Offsets .*{message}"):
                values(kafka, three, **{f"{side}Offsets": offsets})


@pytest.mark.parametrize("loss", ["true", "false"])
def test_a_topic_deleted_between_two_lookups_is_a_loss(kafka, three, loss, caplog):
    class DeletedMeanwhile(LogClient):
        def end_offsets(self, tps):
            if three in kafka.admin.list_topics():
                kafka.delete_topic(three)
            return super().end_offsets(tps)

    topic = topic_with(kafka, numbered(4, 1), partitions=1)
    settings = Options.parse(
        options(kafka, f"{three},{topic}", failOnDataLoss=loss, **{"kafka.request.timeout.ms": 2000})
    )
    with contextlib.closing(DeletedMeanwhile(settings)) as client:
        tps = client.partitions(settings.reading.subscription)
        if loss == "true":
            with pytest.raises(DataLossError, match=rf"PARTITIONS_DELETED\b.*{three}-0 was deleted"):
                plan.batch_ranges(settings, client, tps, {})
            return
        assert plan.batch_ranges(settings, client, tps, {})[0] == [OffsetRange(TopicPartition(topic, 0), 0, 4)]
    assert all(f"PARTITIONS_DELETED: {three}-{p} was deleted" in caplog.text for p in range(3))


class TestTasks:
    """How ranges are cut."""

    def test_a_range_between_offsets_is_cut_into_tasks(self, kafka):
        topic = topic_with(kafka, numbered(10, 1), partitions=1)
        ends = {"startingOffsets": by_partition(topic, {0: 1}), "endingOffsets": by_partition(topic, {0: 4})}
        assert ranges(kafka, topic, minPartitions=3, **ends) == [(0, 1, 2), (0, 2, 3), (0, 3, 4)]

    def test_a_range_between_the_ends_of_the_log_is_cut_into_tasks(self, kafka):
        topic = topic_with(kafka, numbered(4, 1), partitions=1)
        assert ranges(kafka, topic, minPartitions=3) == [(0, 0, 1), (0, 1, 2), (0, 2, 4)]

    def test_ranges_of_several_partitions_are_cut_into_tasks(self, kafka):
        topic = topic_with(kafka, numbered(100, 1), partitions=2)
        produce(kafka, topic, [record._replace(partition=1) for record in numbered(4, 1)])
        ends = {
            "startingOffsets": json.dumps({topic: {"0": -2, "1": -2}}),
            "endingOffsets": by_partition(topic, {0: -1, 1: 3}),
        }
        assert ranges(kafka, topic, minPartitions=4, **ends) == [(0, 0, 33), (0, 33, 66), (0, 66, 100), (1, 0, 3)]

    def test_there_are_at_least_as_many_tasks_as_asked_for_and_every_record_is_read_once(self, kafka, three):
        assert len(batch(settings(kafka, three, minPartitions=6))[1]) >= 6
        assert values(kafka, three, minPartitions=6) == list(range(21))
        send_anywhere(kafka, three, range(21, 31), 3)
        assert values(kafka, three, minPartitions=6) == list(range(31))

    def test_a_task_has_at_most_so_many_records(self, kafka, three):
        assert ranges(kafka, three, maxRecordsPerPartition=4) == [
            (0, 0, 3), (0, 3, 6), (0, 6, 10), (1, 0, 3), (1, 3, 6), (1, 6, 10), (2, 0, 1),
        ]  # fmt: skip
        assert values(kafka, three, maxRecordsPerPartition=4) == list(range(21))


IMPATIENT = {"kafka.request.timeout.ms": 1000, "kafka.fetch.max.wait.ms": 100, "fetchOffset.retryIntervalMs": 100}


class TestRetries:
    """A broker that does not answer while offsets are looked up."""

    @pytest.fixture
    def client_of(self, kafka, three):
        clients = []

        def connected(tries):
            more = IMPATIENT | {"fetchOffset.numRetries": tries, "fetchOffset.retryIntervalMs": 10}
            clients.append(LogClient(Options.parse(options(kafka, three, **more))))
            clients[0].end_offsets(tps)
            kafka.node(0).pause()
            return clients[0]

        tps = [TopicPartition(three, 0)]
        yield connected
        kafka.node(0).resume()
        clients[0].close()
        wait_until(lambda: three in kafka.admin.list_topics(), within=30)

    def test_a_broker_that_does_not_answer_is_an_error_after_so_many_tries(self, client_of, three, caplog):
        with pytest.raises(BrokerTimeoutError, match="looking up end offsets"):
            client_of(tries=3).end_offsets([TopicPartition(three, 0)])
        assert caplog.text.count("asking again") == 2

    def test_a_broker_that_answers_the_last_try_is_no_error(self, kafka, client_of, three, caplog):
        class Back(logging.Handler):
            """The broker is back after the second failure."""

            failures = 0

            def emit(self, record):
                self.failures += "asking again" in record.getMessage()
                if self.failures == 2:
                    kafka.node(0).resume()

        client, log, back = client_of(tries=3), logging.getLogger("spark_kafka_group.wire.log_client"), Back()
        log.addHandler(back)
        try:
            assert client.end_offsets([TopicPartition(three, 0)]) == {TopicPartition(three, 0): 10}
        finally:
            log.removeHandler(back)
        assert caplog.text.count("asking again") == 2
