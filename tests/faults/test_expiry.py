"""Committed offsets that the broker lets expire: a minute at the least, so not with every run."""

import pytest
from support import committed, numbered, options, topic_with

from spark_kafka_group.driver.stream import StreamDriver
from spark_kafka_group.options import Options
from spark_kafka_group.testing import KafkaCluster, wait_until

SOON = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}


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
