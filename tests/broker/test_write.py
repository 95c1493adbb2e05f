"""Tasks that write, without Spark, to real brokers."""

import threading

import pyarrow as pa
import pytest
from support import name

from spark_kafka_group.errors import BrokerError, BrokerTimeoutError, WriteError
from spark_kafka_group.executor.writing.sending import routes
from spark_kafka_group.executor.writing.sink_columns import SinkColumns
from spark_kafka_group.executor.writing.write import write
from spark_kafka_group.options.sink_options import SinkOptions
from spark_kafka_group.testing import KafkaCluster
from spark_kafka_group.values.offsets import TopicPartition


@pytest.fixture(autouse=True)
def disconnected():
    yield
    routes.close_all()


def options(kafka, topic=None, **more):
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers} | ({} if topic is None else {"topic": topic})
    return SinkOptions.parse(given | more)


def values(*texts):
    return pa.record_batch([pa.array(texts, pa.string())], names=["value"])


def test_a_task_counts_what_brokers_have_acknowledged_by_partition(kafka):
    topic = kafka.create_topic(name("topic"), partitions=3)
    batches = [
        pa.record_batch([pa.array([f"{n}" for n in range(300)]), pa.array([n % 3 for n in range(300)], pa.int32())],
                        names=["value", "partition"])
        for _ in range(4)
    ]  # fmt: skip
    written = write(batches, options(kafka, topic), SinkColumns(value=0, partition=1))
    assert written.records == {TopicPartition(topic, partition): 400 for partition in range(3)}


def test_the_next_task_has_the_connections_of_the_last_one_also_for_other_topics(kafka):
    topics = [kafka.create_topic(name("topic"), partitions=1) for _ in range(2)]
    write([values("a")], options(kafka, topics[0]), SinkColumns(value=0))
    kept = routes.receivers_for(options(kafka).client)
    before = dict(kept.brokers.connections())
    assert before
    routes.keep(kept)
    write([values("b")], options(kafka, topics[1]), SinkColumns(value=0))
    assert routes.receivers_for(options(kafka).client) is kept
    routes.keep(kept)
    assert dict(kept.brokers.connections()) == before


def test_a_task_without_rows_for_a_column_topic_needs_no_broker():
    nowhere = SinkOptions.parse({"kafka.bootstrap.servers": "127.0.0.1:1"})
    assert write(iter(()), nowhere, SinkColumns(value=0, topic=1)).records == {}


def test_a_topic_is_missed_before_the_first_row_is_taken(kafka):
    absent, taken = name("absent"), []

    def rows():
        taken.append(1)
        yield values("a")

    with pytest.raises(BrokerError, match=f"^topic {absent} does not exist: create it, or correct its name$"):
        write(rows(), options(kafka, absent), SinkColumns(value=0))
    assert taken == []


def test_a_row_for_a_partition_that_was_added_is_written_and_one_for_none_is_refused(kafka):
    topic = kafka.create_topic(name("topic"), partitions=1)
    columns = SinkColumns(value=0, partition=1)

    def to(partition):
        return pa.record_batch([pa.array(["a"]), pa.array([partition], pa.int32())], names=["value", "partition"])

    assert write([to(0)], options(kafka, topic), columns).records == {TopicPartition(topic, 0): 1}
    kafka.add_partitions(topic, 3)
    assert write([to(2)], options(kafka, topic), columns).records == {TopicPartition(topic, 2): 1}
    with pytest.raises(WriteError, match=f"^{topic}-3: a row names this partition .* has 3 partitions, 0 to 2: "):
        write([to(3)], options(kafka, topic), columns)


@pytest.mark.soak
def test_a_task_that_begins_while_brokers_are_away_waits_for_kafka_max_block_ms():
    with KafkaCluster() as cluster:
        topic = cluster.create_topic(name("topic"), partitions=1)
        cluster.node(0).kill()
        quick = options(cluster, topic, **{"kafka.max.block.ms": "1500", "kafka.request.timeout.ms": "1000"})
        with pytest.raises(BrokerTimeoutError, match=f"^looking up topic {topic}: no answer within kafka.max.block.ms"):
            write([values("a")], quick, SinkColumns(value=0))
        results = []
        patient = options(cluster, topic, **{"kafka.request.timeout.ms": "2000"})
        task = threading.Thread(target=lambda: results.append(write([values("a")], patient, SinkColumns(value=0))))
        task.start()
        cluster.node(0).start()
        task.join(60)
        assert [written.records for written in results] == [{TopicPartition(topic, 0): 1}]
