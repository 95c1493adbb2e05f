"""Committed offsets that the broker lets expire.

Brokers keep a query's commit for a minute at least, too long for every run. A commit of the older versions of the
request has its own time to live.
"""

import pytest
from support import committed, numbered, options, produce, topic_with

from spark_kafka_group.driver.stream import StreamDriver
from spark_kafka_group.options import Options
from spark_kafka_group.testing import KafkaCluster, wait_until
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire import GroupClient
from spark_kafka_group.wire.group.offset_requests import commit_request, partitions_of

SOON = {"offsets.retention.minutes": "1"}
WITH_RETENTION = 4
"""The last version of OffsetCommit that has it."""


def commit_again_for_a_moment(kafka, settings):
    """Commit the group's offsets once more, so that they expire when the broker looks next."""
    client = GroupClient(settings, settings.group.id)
    try:
        assert client.live_members() == []
        wanted = client.committed(client.partitions(settings.reading.subscription))
        offsets = {tp: group.offset for tp, group in wanted.items()}
        (note,) = {group.metadata for group in wanted.values()}
        request = commit_request(settings.group.id, offsets, note)
        request.retention_time_ms, request.API_VERSION = 1, WITH_RETENTION
        assert not any(partition.error_code for _, partition in partitions_of(client._ask_coordinator(request)))
    finally:
        client.close()


@pytest.fixture
def expired(kafka, group):
    """A topic of which a query has read 10 records of each partition, its end, and 10 more that came later. The group's
    offsets have expired."""
    topic = topic_with(kafka, numbered(20, 2), partitions=2)
    settings = Options.parse(options(kafka, topic, group))
    driver = StreamDriver(settings)
    end = driver.latest_offset(driver.initial_offset(), None)
    assert driver.latest_offset(end, None) == end
    driver.stop()
    assert committed(kafka, group) == {(topic, 0): 10, (topic, 1): 10}
    commit_again_for_a_moment(kafka, settings)
    wait_until(lambda: committed(kafka, group) == {}, within=30)
    produce(kafka, topic, numbered(20, 2))
    return topic, end


def test_offsets_that_the_broker_lets_expire_come_back_from_the_checkpoint(kafka, group, expired):
    topic, end = expired
    settings = Options.parse(options(kafka, topic, group))
    again = StreamDriver(settings)
    following = again.latest_offset(end, None)
    assert committed(kafka, group) == {(topic, 0): 10, (topic, 1): 10}
    assert [(r.start, r.end) for task in again.plan(end, following) for r in task] == [(10, 20), (10, 20)]
    again.stop()


@pytest.mark.parametrize(("policy", "start"), [("latest", 20), ("earliest", 0)])
def test_with_a_new_checkpoint_the_reset_policy_takes_over_with_a_warning(kafka, group, expired, caplog, policy, start):
    topic, _ = expired
    kafka.add_partitions(topic, 3)  # which never has a record, and is not worth a word
    by_policy = {"startingOffsets": "group", "kafka.auto.offset.reset": policy}
    new = StreamDriver(Options.parse(options(kafka, topic, group, **by_policy)))
    new.latest_offset(new.initial_offset(), None)
    starts = new._session.standing.starts(new._session.member.owned)
    new.stop()
    assert starts == {TopicPartition(topic, 0): start, TopicPartition(topic, 1): start, TopicPartition(topic, 2): 0}
    assert f"group {group}: no committed offset for {topic}-0 {topic}-1 (none was committed, or it has expired): " in (
        caplog.text
    )
    assert f"starting where kafka.auto.offset.reset says ({policy})" in caplog.text


@pytest.mark.soak
def test_offsets_that_expired_come_back_from_the_checkpoint(group):
    with KafkaCluster(properties=SOON) as kafka:
        topic = topic_with(kafka, numbered(10, 1), partitions=1)
        settings = Options.parse(options(kafka, topic, group))
        driver = StreamDriver(settings)
        end = driver.latest_offset(driver.initial_offset(), None)
        assert driver.latest_offset(end, None) == end
        driver.stop()
        assert committed(kafka, group) == {(topic, 0): 10}
        wait_until(lambda: committed(kafka, group) == {}, within=180)
        again = StreamDriver(settings)
        assert again.latest_offset(end, None) == end
        assert committed(kafka, group) == {(topic, 0): 10}
        again.stop()
