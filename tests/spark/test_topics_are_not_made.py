"""On brokers that create a topic at the first request about it, Kafka's default, no request of this package creates
one, but for the sink's."""

import contextlib
import json

import pytest
from support import commit_for, name, options

from spark_kafka_group import GroupKafkaDataSource, RecordProcessor, group_batch, read_where
from spark_kafka_group.__main__ import main
from spark_kafka_group.driver.stream import StreamDriver
from spark_kafka_group.errors import BrokerError, GroupKafkaError
from spark_kafka_group.executor.reading.read import read
from spark_kafka_group.options import Options
from spark_kafka_group.testing import KafkaCluster, wait_until
from spark_kafka_group.values.offsets import OffsetRange, ReadTask, TopicPartition
from spark_kafka_group.wire.group.non_member import NonMemberCommitter

MAKES_TOPICS = {"auto.create.topics.enable": "true"}


@pytest.fixture(scope="module")
def kafka():
    """Instead of the one that all tests share, a broker that makes topics that are asked for."""
    with KafkaCluster(properties=MAKES_TOPICS) as kafka:
        kafka.create_topic("there")
        kafka.produce("there", [b"1"])
        yield kafka


@pytest.fixture
def typo(kafka):
    """A topic that is not there, nor anything named after it, when the test has ended."""
    typo = name("typo")
    yield typo
    # The broker makes topics in the order in which they were asked for, some time later.
    asked_for = name("asked-for")
    kafka.produce(asked_for, [b""])
    assert [topic for topic in kafka.admin.list_topics() if typo in topic] == []


def refused(call, problem):
    """The error comes at the first run, and at the next one."""
    for _ in range(2):
        with pytest.raises(Exception, match=problem):
            call()


@contextlib.contextmanager
def started(kafka, topic, **more):
    subscribed = options(kafka, topic, name("group"))
    if "assign" in more:
        del subscribed["subscribe"]
    driver = StreamDriver(Options.parse(subscribed | more))
    try:
        yield driver
    finally:
        driver.stop()


def trigger(driver, offset):
    end = driver.latest_offset(offset)
    return end, driver.plan(offset, end)


def test_a_stream_of_a_topic_that_is_not_there_makes_none(kafka, typo):
    with started(kafka, f"there,{typo}") as driver:
        end, tasks = trigger(driver, driver.initial_offset())
        assert [r.size for task in tasks for r in task] == [1]
        cluster = driver._session.member.client._manager.cluster
        asked = cluster._last_successful_refresh_ms
        wait_until(lambda: cluster._last_successful_refresh_ms > asked, within=30)  # it is asked for once more
        assert trigger(driver, end) == (end, [])


def test_a_stream_with_retry_topics_that_are_not_there_makes_none(kafka, typo):
    topic = kafka.create_topic(name("retried"))
    with started(kafka, topic, retryTopics="5000,60000") as driver:
        trigger(driver, driver.initial_offset())
    assert [other for other in kafka.admin.list_topics() if topic in other] == [topic]


@pytest.mark.soak
def test_a_stream_whose_topic_is_deleted_makes_none(kafka, typo):
    other = name("other")
    for topic in (typo, other):
        kafka.create_topic(topic)
        kafka.produce(topic, [b"1"])
    brief = {"kafka.request.timeout.ms": "1000", "failOnDataLoss": "false"}
    with started(kafka, f"{other},{typo}", **brief) as driver:
        end, tasks = trigger(driver, driver.initial_offset())
        assert len([r for task in tasks for r in task]) == 2
        kafka.delete_topic(typo)
        while typo in end:  # as long as it is read
            kafka.produce(other, [b"2"])
            end, _ = trigger(driver, end)


def test_a_stream_of_an_assigned_partition_makes_no_topic(kafka, typo):
    def start():
        with started(kafka, "", assign=json.dumps({typo: [0]})) as driver:
            driver.latest_offset(driver.initial_offset())

    refused(start, f"assign names {typo}-0, which the cluster does not have")


def test_a_stream_whose_dead_letter_topic_is_not_there_makes_none(kafka, typo):
    topic = kafka.create_topic(name("dead"))

    def start():
        with started(kafka, topic, onCorruptRecord="deadLetter") as driver:
            driver.latest_offset(driver.initial_offset())

    refused(start, f"the cluster does not have {topic}-dlt")
    assert [other for other in kafka.admin.list_topics() if topic in other] == [topic]


@pytest.mark.parametrize("named", ["subscribe", "assign"])
def test_a_batch_read_makes_no_topic(kafka, typo, named):
    wanted = {"subscribe": typo} if named == "subscribe" else {"assign": json.dumps({typo: [0]})}
    reader = GroupKafkaDataSource({"kafka.bootstrap.servers": kafka.bootstrap_servers} | wanted).reader(None)
    refused(reader.partitions, f"{named} names {typo}(-0)?, which the cluster does not have")


def test_group_batch_makes_no_topic(kafka, typo, group, spark):
    def run():
        with group_batch(spark, options(kafka, typo, group)):
            pass

    refused(run, f"{typo}, which the cluster does not have")


@pytest.mark.soak
def test_read_where_makes_no_topic(kafka, typo, spark):
    refused(
        lambda: read_where(spark, options(kafka, typo), "offset > 3").count(),
        f"{typo}, which the cluster does not have",
    )


@pytest.mark.parametrize("to", [{"dead_letter_topic": "{topic}-dlt"}, {"retry_topics": (5000,)}], ids=str)
def test_a_record_processor_whose_topics_are_not_there_makes_none(kafka, typo, spark, to):
    topic = kafka.create_topic(name("handled"))
    wanted = options(kafka, topic)
    df = spark.createDataFrame(
        [],
        "topic string, partition int, offset bigint, key binary, value binary, "
        "headers array<struct<key:string,value:binary>>, timestamp timestamp, "
        "timestampType int",
    )
    refused(lambda: RecordProcessor(print, options=wanted, **to).run(df), f"{topic}-(dlt|retry)")
    assert [other for other in kafka.admin.list_topics() if topic in other] == [topic]


def test_a_task_whose_topic_is_gone_makes_none(kafka, typo):
    wanted = Options.parse(options(kafka, typo) | {"kafkaConsumer.pollTimeoutMs": "500"})
    refused(lambda: list(read(ReadTask((OffsetRange(TopicPartition(typo, 0), 0, 1),)), wanted)), f"{typo}-0")


def test_a_listeners_commit_for_a_topic_that_is_gone_makes_none(kafka, typo, group):
    commit_for(kafka, group, {("there", 0): 1})
    brief = Options.parse(options(kafka, typo, group) | {"kafka.request.timeout.ms": "1000"})
    tp, found = TopicPartition(typo, 0), []
    with NonMemberCommitter(brief, group) as committer, contextlib.suppress(BrokerError, GroupKafkaError):
        committer.commit([tp], lambda committed: found.append(committed) or {tp: 1}, "", 1, "instance")
    assert {} in found


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["describe", "--group", "{group}"], 0),
        (["offsets", "--group", "{group}"], 0),
        (["reset", "--group", "{group}", "--topic", "{typo}", "--to-earliest"], 1),
        (["reset", "--group", "{group}", "--topic", "{typo}", "--to-earliest", "--execute"], 1),
        (["reset", "--group", "{group}", "--topic", "{typo}:0", "--to-offset", "3"], 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_makes_no_topic(kafka, typo, group, arguments, code):
    kafka.create_topic(typo)
    commit_for(kafka, group, {(typo, 0): 1, ("there", 0): 1})
    kafka.delete_topic(typo)
    servers = ["--bootstrap-server", kafka.bootstrap_servers]
    said = [word.format(group=group, typo=typo) for word in arguments]
    assert main([said[0], *servers, *said[1:]]) == code
