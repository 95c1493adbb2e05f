"""Queries of real Spark on kfake: streams, restarts, several members, and writing exactly once."""

import pytest
from support import name
from support.batches import log_of
from support.triggers import send

from spark_kafka_group.values.offsets import TopicPartition

pytestmark = pytest.mark.soak
WITHIN_S = 120


def copied(spark, kfake, folder, topic, output, rows, **more):
    """One run of a query that copies a topic, until it has all that is there."""
    prefix = f"copy-{output}"
    stream = (
        spark.readStream.format("groupkafka")
        .option("kafka.bootstrap.servers", kfake.bootstrap_servers)
        .option("subscribe", topic)
        .option("kafka.group.id", f"group-{output}")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", rows)
        .options(**({"kafka.transactional.id": prefix} if more else {}))
        .load()
    )
    query = (
        stream.select("key", "value")
        .writeStream.format("groupkafka")
        .option("kafka.bootstrap.servers", kfake.bootstrap_servers)
        .option("topic", output)
        .option("checkpointLocation", str(folder))
        .options(**({"kafka.transactional.id": prefix} | more if more else {}))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(WITHIN_S)


@pytest.mark.parametrize("more", [{}, {"deliveryGuarantee": "exactly-once"}], ids=["at least once", "exactly once"])
@pytest.mark.parametrize("brokers", [1, 3])
def test_a_query_copies_a_topic_over_restarts_of_itself_and_of_the_brokers(spark, kfake_with, tmp_path, more, brokers):
    kfake = kfake_with(brokers=brokers, data=tmp_path / "data")
    topic, output = kfake.create_topic(name("orders"), 3), kfake.create_topic(name("output"))
    for run in range(3):
        for partition in range(3):
            first = 300 * run + 100 * partition
            send(kfake, topic, partition, range(first, first + 100))
        copied(spark, kfake, tmp_path / "checkpoint", topic, output, 120, **more)
        kfake.stop()
        kfake.start()
    found = log_of(kfake, TopicPartition(output, 0), isolation_level="read_committed")
    assert sorted(map(int, found)) == list(range(900))
