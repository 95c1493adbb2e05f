"""Records above their topic's max.decompressed.message.bytes (Kafka 4.4): written, looked up by time, and read."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from kafka.admin import ConfigResource
from support import Record, commit_for, name, options, produce, topic_with
from support.batches import batch_of, sender

from spark_kafka_group import explore
from spark_kafka_group.errors import BrokerError, WriteError
from spark_kafka_group.executor.writing.sending import routes
from spark_kafka_group.explore.record_samples import to_look_at
from spark_kafka_group.options import Options
from spark_kafka_group.options.producing import Producing
from spark_kafka_group.testing import wait_until
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire import LogClient
from spark_kafka_group.wire.topic_admin import TopicAdmin

AT_MS = 1_700_000_000_000
LARGE = b"x" * 100_000
SETTING = "max.decompressed.message.bytes"
"""Of three records, a second apart, the one in the middle is above it."""


def at(second):
    return datetime.fromtimestamp(AT_MS / 1000, UTC) + timedelta(seconds=second)


def found_after_a(kafka, topic):
    """What a broker answers about the time after that of the first record."""
    with TopicAdmin(to_look_at({"kafka.bootstrap.servers": kafka.bootstrap_servers}, topic)) as admin:
        admin.leaders([topic])
        return admin.lookups("looking", [{TopicPartition(topic, 0): AT_MS + 1}])[0]


def limit(kafka, topic, size):
    kafka.admin.alter_configs([ConfigResource("TOPIC", topic, configs={SETTING: str(size)})])
    wait_until(lambda: bool(found_after_a(kafka, topic)) == (size > len(LARGE)), within=30)


@pytest.fixture
def topic(kafka):
    """A broker packs a record batch again only when it compacts: what is stored stays above a limit that is lowered."""
    topic = topic_with(kafka, [], partitions=2)
    for second, value in enumerate([b"a", LARGE, b"c"]):
        produce(kafka, topic, [Record(0, None, value, (), AT_MS + 1000 * second)], compression="gzip")
    limit(kafka, topic, 50_000)
    return topic


def test_a_record_that_is_too_large_when_it_is_unpacked_is_refused_with_the_setting(kafka):
    tp = TopicPartition(kafka.create_topic(name("small"), configs={SETTING: "50000"}), 0)
    with sender(kafka.bootstrap_servers, Producing(compression_type="gzip")) as sending:
        sending.send(tp, batch_of(tp, [LARGE], "gzip"))
        with pytest.raises(
            WriteError, match=rf"{tp}: .*INVALID_RECORD: .*a {SETTING} below .*compression.type to none"
        ):
            sending.flush()
    with sender(kafka.bootstrap_servers) as sending:
        sending.send(tp, batch_of(tp, [LARGE]))
        assert sending.flush()[tp].records == 1
    routes.close_all()


@pytest.mark.parametrize("option", ["startingTimestamp", "startingOffsetsByTimestamp", "endingTimestamp"])
def test_a_time_that_the_broker_does_not_find_is_an_error_at_once_that_names_the_setting(
    kafka, topic, group, driver_of, option
):
    value = f'{{"{topic}": {AT_MS + 1}}}' if "Offsets" in option else AT_MS + 1
    driver = driver_of(kafka, topic, group, **{option: value}, startingOffsetsByTimestampStrategy="latest")
    began = time.monotonic()
    with pytest.raises(
        BrokerError, match=rf": INVALID_RECORD for {topic}-0: the broker unpacks no record above {SETTING}"
    ):
        driver.latest_offset(driver.initial_offset(), None)
    assert time.monotonic() - began < 15
    limit(kafka, topic, 200_000)
    again = driver_of(kafka, topic, f"{group}-2", **{option: value}, startingOffsetsByTimestampStrategy="latest")
    assert again.latest_offset(again.initial_offset(), None)[topic]["0"] == (1 if option == "endingTimestamp" else 3)


def test_records_are_read_and_other_times_found(kafka, topic, group, driver_of):
    driver = driver_of(kafka, topic, group)
    assert driver.latest_offset(driver.initial_offset(), None)[topic]["0"] == 3
    client = LogClient(Options.parse(options(kafka, topic)))
    tp = TopicPartition(topic, 0)
    assert [client.offsets_at({tp: AT_MS + ms}) for ms in (0, 1500, 9999)] == [{tp: 0}, {tp: 2}, {tp: None}]
    client.close()


def test_a_look_goes_on_with_a_warning_once(kafka, topic, caplog):
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    found = explore.rate(servers, topic, at(0), at(4), points=8)
    assert [(row.start, row.records) for row in found if row.records] == [(at(1), 2), (at(2), 1)]
    assert caplog.text.count(f"INVALID_RECORD for {topic}-0: the broker unpacks no record above {SETTING}") == 1
    (facts,) = explore.topics(servers | {"subscribe": topic})
    assert (facts.records, facts.first, facts.last) == (3, at(0), at(2))
    assert [message.offset for message in explore.look(servers, topic)] == [0, 1, 2]
    with pytest.raises(BrokerError, match=f"INVALID_RECORD for {topic}-0: .* give offsets in place of times"):
        explore.look(servers, topic, at=at(0.5))


def test_the_newest_record_may_be_the_one(kafka, topic, caplog):
    produce(kafka, topic, [Record(0, None, b"d", (), AT_MS)])
    newest = [Record(1, None, LARGE, (), AT_MS + 5000)]
    limit(kafka, topic, 200_000)
    produce(kafka, topic, newest, compression="gzip")
    limit(kafka, topic, 50_000)
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    (facts,) = explore.topics(servers | {"subscribe": topic})
    assert (facts.records, facts.last) == (5, at(2))
    assert f"INVALID_RECORD for {topic}-1" in caplog.text
    (message,) = explore.look(servers, topic, last=1)
    assert message.partition == 1


def test_lag_in_seconds_is_that_of_the_record_itself(kafka, topic, group):
    commit_for(kafka, group, {(topic, 0): 1})
    lag = explore.lag({"kafka.bootstrap.servers": kafka.bootstrap_servers}, group)
    (row,) = (row for row in lag if row.tp == (topic, 0))
    assert row.lag == 2
    assert row.lag_s == pytest.approx(time.time() - AT_MS / 1000 - 1, abs=60)
