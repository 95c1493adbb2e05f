"""Logs that lost their ends (KIP-320): a broker without replicas is killed, and the last records were not on its disk.

One broker is killed for all tests here. Each has a query of its own that was under way before, with a topic of its own.
Most logs have grown again, beyond the positions of these queries, when they are looked at next.
"""

import contextlib
from types import SimpleNamespace

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaTopicPartition
from support import committed, committed_epochs, name
from support.damage import cut_off
from support.triggers import QUICK, Stream, batch, cuts, read
from test_data_loss import loss

from spark_kafka_group import GroupKafkaDataSource
from spark_kafka_group.testing import KafkaCluster
from spark_kafka_group.values.offsets import OffsetRange, ReadTask, TopicPartition

GOES_ON = {"failOnDataLoss": "false"}
STOPS = {"failOnDataLoss": "true"}
CHANGED = "PARTITION_OFFSET_CHANGED"
PARTITIONS = 20
LATER = list(range(1000, 1015))
"""Written after the loss."""


class Query(Stream):
    """A stream with a group, and a topic of three record batches: offsets 0 to 9, 10 to 14, and 15 to 19."""

    def __init__(self, kafka, producer, subscribe="subscribe", written=20, **more):
        self.kafka, self.producer, self.topic, self.group = kafka, producer, name("cut"), name("group")
        kafka.create_topic(self.topic)
        self.write(0, written)
        named = {"subscribe": self.topic, "assign": f'{{"{self.topic}": [0]}}'}[subscribe]
        super().__init__(
            {"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.group.id": self.group, subscribe: named}
            | {"startingOffsets": "earliest"} | QUICK | {option: str(value) for option, value in more.items()}
        )  # fmt: skip

    def write(self, first, end):
        for begin, after in ((0, 10), (10, 15), (15, 20)):
            if first <= begin and after <= end:
                send(self.producer, self.topic, range(begin, after))

    def read_all(self):
        assert self.trigger() == list(range(20))
        assert self.trigger() is None
        return self

    def stopped(self):
        self.reader.stop()
        return self

    def with_ten_read_and_ten_planned(self):
        assert self.trigger() == list(range(10))
        self.write(10, 20)
        self.end, self.tasks = self.plan()
        assert cuts(self.tasks) == [(0, 10, 20)]
        return self

    def committed(self):
        """The group's offset and its leader epoch."""
        (epoch,) = committed_epochs(self.kafka, self.group)
        return committed(self.kafka, self.group)[self.topic, 0], epoch

    def losses(self):
        shown = self.reader.reportLatestOffset()["@group"]
        return shown["dataLosses"], shown["offsetsLost"]


def send(producer, topic, values):
    """Write numbers, as record batches of their own."""
    sent = [producer.send(topic, b"%d" % value) for value in values]
    producer.flush()
    for future in sent:
        future.get(timeout=30)


@pytest.fixture(scope="module")
def lost():
    """Queries by name, after the loss."""
    with KafkaCluster(1) as kafka, contextlib.ExitStack() as ending:
        producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, acks="all")

        def query(**more):
            made = Query(kafka, producer, **more)
            ending.callback(lambda: made.reader.stop())
            return made

        queries = {
            (how, what["failOnDataLoss"]): make(what)
            for what in (STOPS, GOES_ON)
            for how, make in {
                "stopped": lambda what: query(**what).read_all().stopped(),
                "running": lambda what: query(**what).read_all(),
                "assigned": lambda what: query(subscribe="assign", **what).read_all(),
                "planned": lambda what: query(written=10, **what).with_ten_read_and_ten_planned(),
                "to read again": lambda what: query(written=10, **what).with_ten_read_and_ten_planned().stopped(),
            }.items()
        }
        queries["short"] = query(**GOES_ON).read_all()
        queries["limited"] = query(maxOffsetsPerTrigger=15, **GOES_ON)
        assert queries["limited"].trigger() == list(range(15))
        queries["whole"] = query(**STOPS).read_all()
        queries["above"] = query(maxOffsetsPerTrigger=10, **STOPS)
        assert queries["above"].trigger() == list(range(10))
        queries["whole, planned"] = query(written=10, **STOPS).with_ten_read_and_ten_planned()
        for fail in ("true", "false"):
            queries["remade", fail] = query(failOnDataLoss=fail, **{"kafkaConsumer.pollTimeoutMs": 4000})
        many = kafka.create_topic(name("many"), PARTITIONS)
        for partition in range(PARTITIONS):
            producer.send(many, b"%d" % partition, partition=partition)
        producer.close()
        kafka.node(0).kill()
        at = {query: 15 if "planned" in how or "to read again" in how else 10 for how, query in queries.items()}
        kept = {made for how, made in queries.items() if how[0] == "remade" or str(how).startswith("whole")}
        for made in queries.values():
            if made not in kept:
                (segment,) = (kafka.directory / "node1" / "data" / f"{made.topic}-0").glob("*.log")
                cut_off(segment, at[made])
        kafka.node(0).start()
        kafka.wait_until_ready()
        with KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, acks="all") as producer:
            for made in queries.values():
                send(producer, made.topic, LATER[:3] if made is queries["short"] else LATER)
        queries["many"] = SimpleNamespace(topic=many, settings=queries["short"].settings)
        yield queries


@pytest.mark.parametrize("how", ["stopped", "running", "assigned"])
def test_a_query_that_had_read_what_is_lost_stops_and_says_where_the_logs_diverge(lost, how):
    query = lost[how, "true"]
    if how == "stopped":
        query.restart()
    with loss(CHANGED, query.topic) as message:
        query.trigger()
    assert f"{query.topic}-0: records up to offset 20 were read under leader epoch" in str(message.value)
    assert "has lost them from offset 10 on" in str(message.value)


@pytest.mark.parametrize("how", ["stopped", "running", "assigned"])
def test_with_fail_on_data_loss_false_a_query_goes_on_where_the_logs_diverge_and_misses_nothing(lost, how):
    query = lost[how, "false"]
    epoch = query.committed()[1]
    if how == "stopped":
        query.restart()
    assert query.trigger() == LATER
    assert query.committed() == (10, epoch + 2)
    assert query.trigger() is None
    assert query.positions(query.topic) == {0: 25}
    assert query.committed() == (25, epoch + 2)
    assert query.losses() == (1, 0)
    query.restart()
    assert query.trigger() is None
    assert query.losses() == (0, 0)


def test_a_log_that_ends_before_the_position_is_read_from_where_it_diverges(lost):
    query = lost["short"]
    assert query.trigger() == LATER[:3]
    assert query.losses() == (1, 0)


def test_records_that_were_lost_before_they_were_read_are_counted(lost):
    query = lost["limited"]
    assert query.trigger() == LATER
    assert query.losses() == (1, 5)


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_task_that_was_planned_before_reads_none_of_the_records_that_took_the_place_of_others(lost, fail):
    query = lost["planned", fail]
    if fail == "true":
        with loss(CHANGED, query.topic):
            read(query.reader, query.tasks)
        return
    assert read(query.reader, query.tasks) == list(range(10, 15))
    query.offset = query.end
    assert query.trigger() == LATER
    assert query.positions(query.topic) == {0: 30}


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_batch_that_is_read_again_ends_where_its_log_diverges(lost, fail):
    query = lost["to read again", fail]
    query.restart()
    if fail == "true":
        with loss(CHANGED, query.topic):
            query.reader.partitions(query.offset, query.end)
        return
    tasks = query.reader.partitions(query.offset, query.end)
    assert cuts(tasks) == [(0, 10, 15)]
    assert read(query.reader, tasks) == list(range(10, 15))
    query.offset = query.end
    assert query.trigger() == LATER
    assert query.losses() == (1, 5)
    assert query.positions(query.topic) == {0: 30}


def test_a_new_leader_whose_log_is_whole_is_no_loss(lost):
    query = lost["whole"]
    epoch = query.committed()[1]
    assert query.trigger() == LATER
    assert query.trigger() is None
    assert query.committed() == (35, epoch + 2)
    planned = lost["whole, planned"]
    assert read(planned.reader, planned.tasks) == list(range(10, 20))
    planned.offset = planned.end
    assert planned.trigger() == LATER


def test_a_position_before_what_is_lost_is_no_loss(lost):
    query = lost["above"]
    assert query.trigger() == LATER[:10]
    assert query.trigger() == LATER[10:]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_batch_read_from_the_groups_offset_starts_where_the_log_diverges(lost, fail):
    query = lost["stopped", "true"]  # its group stands at 20
    settings = query.settings | {"startingOffsets": "group", "failOnDataLoss": fail}
    if fail == "true":
        with loss(CHANGED, query.topic):
            batch(settings)
    else:
        assert read(*batch(settings)) == LATER


@pytest.mark.parametrize("how", ["stream", "batch"])
@pytest.mark.parametrize("epoch", [0, 99])
def test_epochs_in_commits_of_other_programs_are_not_believed(lost, epoch, how):
    """Some clients commit epoch 0 always, or that of the offset they found when they started."""
    query, group = lost["above"], name("group")
    tp = KafkaTopicPartition(query.topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=query.kafka.bootstrap_servers, group_id=group, enable_auto_commit=False)
    consumer.assign([tp])
    consumer.commit({tp: OffsetAndMetadata(15, "", epoch)})
    consumer.close()
    assert committed_epochs(query.kafka, group) == {epoch}
    settings = query.settings | STOPS | {"kafka.group.id": group, "startingOffsets": "group"}
    del settings["maxOffsetsPerTrigger"]
    if how == "batch":
        assert read(*batch(settings)) == LATER[5:]
        return
    stream = Stream(settings)
    try:
        assert stream.trigger() == LATER[5:]
    finally:
        stream.reader.stop()


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_task_gives_up_a_topic_that_was_made_again_whose_epochs_begin_again(lost, fail):
    query = lost["remade", fail]
    end, tasks = query.plan()
    assert cuts(tasks) == [(0, 0, 35)]
    assert max(tasks[0].epochs) > 0
    query.kafka.delete_topic(query.topic)
    query.kafka.create_topic(query.topic)
    query.kafka.produce(query.topic, [b"%d" % value for value in range(40)])
    if fail == "true":
        with loss("COULD_NOT_READ_OFFSET_RANGE", query.topic):
            read(query.reader, tasks)
        return
    assert read(query.reader, tasks) == []
    query.offset = end
    assert query.trigger() == list(range(40))


def test_logs_of_a_new_leader_are_compared_all_at_a_time(lost, caplog):
    topic = lost["many"].topic
    ranges = tuple(OffsetRange(TopicPartition(topic, partition), 0, 1) for partition in range(PARTITIONS))
    reader = GroupKafkaDataSource(lost["many"].settings).streamReader(None)
    with caplog.at_level("INFO", "kafka.cluster"):
        assert read(reader, [ReadTask(ranges, (0,) * PARTITIONS)]) == list(range(PARTITIONS))
    lookups = [message for message in caplog.messages if "coordinators: 0" in message]  # drivers know a coordinator
    assert len(lookups) < PARTITIONS / 2
