"""Producers of the fault matrix."""

from support import name

from faults.load import Load
from spark_kafka_group.testing import wait_until


def test_partitions_that_are_added_get_records_soon(kafka):
    topic = kafka.create_topic(name("load"), partitions=1)
    with Load(kafka.bootstrap_servers, {topic: 1}, 100) as load:
        wait_until(lambda: load.acknowledged, within=30)
        kafka.add_partitions(topic, 2)
        load.spread(topic, 2)
        wait_until(lambda: any(each.partition == 1 for each in load.acknowledged), within=30)
