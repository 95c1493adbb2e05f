"""All brokers come back at other addresses, behind the name of kafka.bootstrap.servers: running queries go on."""

import threading

import pytest
from support import committed, numbered, options, produce, topic_with
from support.relay import Bootstrap

from spark_kafka_group import GroupKafkaListener
from spark_kafka_group.testing import KafkaCluster, wait_until


@pytest.fixture
def bootstrap():
    with Bootstrap() as address:
        yield address


@pytest.fixture
def moved(tmp_path, bootstrap):
    """Stops the broker and starts it with the same data on another port; returns it."""
    running = []

    def move():
        for cluster in running:
            cluster.stop()
        cluster = KafkaCluster(directory=tmp_path / "kafka").start()
        bootstrap.target = ("127.0.0.1", cluster.ports[0])
        running[:] = [cluster]
        return cluster

    yield move
    for cluster in running:
        cluster.stop()


@pytest.mark.soak
def test_a_query_and_its_listener_go_on_whether_it_waits_or_is_about_to_read(spark, bootstrap, moved, group, tmp_path):
    first = moved()
    topic = topic_with(first, numbered(30, 3))
    clusters, values, moving = [first], [], threading.Event()

    def keep(rows, batch_id):
        if moving.is_set():  # planned by the addresses that were right, and not yet read
            moving.clear()
            clusters.append(moved())
        values.extend(bytes(row.value) for row in rows.select("value").collect())

    settings = options(first, topic, group) | {"kafka.bootstrap.servers": bootstrap.address}
    stream = spark.readStream.format("groupkafka").options(**settings).load()
    query = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    def has(count):
        wait_until(lambda: not query.isActive or len(values) >= count, within=120)
        assert query.exception() is None
        assert sorted(values) == sorted(b"v%d" % n for n in range(count))
        wait_until(lambda: sum(committed(clusters[-1], group).values()) == count, within=120)

    try:
        with GroupKafkaListener(spark):
            has(30)
            clusters.append(moved())
            produce(clusters[-1], topic, numbered(30, 3, first=30))
            has(60)
            moving.set()
            produce(clusters[-1], topic, numbered(30, 3, first=60))
            has(90)
        assert len({cluster.bootstrap_servers for cluster in clusters}) == 3
    finally:
        query.stop()
