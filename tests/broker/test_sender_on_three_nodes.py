"""A sender and leaders that are killed, hang, or move: others go on; nothing is lost, doubled or out of order."""

import threading
import time

import pytest
from kafka.structs import TopicPartition as KafkaTopicPartition
from support import in_sync, name
from support.batches import batch_of, differences, log_of, numbered, numbers, sender

from spark_kafka_group.errors import WriteError
from spark_kafka_group.executor.writing.sender import Written
from spark_kafka_group.executor.writing.sending import routes
from spark_kafka_group.options.producing import Producing
from spark_kafka_group.testing import wait_until
from spark_kafka_group.values.offsets import TopicPartition

QUICK = {"kafka.request.timeout.ms": 3000, "kafka.socket.connection.setup.timeout.ms": 1000}
AT_ONCE = 50


@pytest.fixture(autouse=True)
def disconnected():
    yield
    routes.close_all()


@pytest.fixture
def nodes(kafka3):
    """Three brokers, which are all there again in the end."""
    yield kafka3
    for node in kafka3.nodes:
        node.resume()
        node.start()
    kafka3.wait_until_ready()


def led_by_each(kafka3, **configs):
    """Partitions of a new topic: one that each node leads."""
    topic = kafka3.create_topic(name("spread"), partitions=6, configs=configs)
    found = {}
    for partition in range(6):
        found.setdefault(kafka3.leader(topic, partition), TopicPartition(topic, partition))
    assert set(found) == {1, 2, 3}
    return found


class Load:
    """Sends to partitions in turn, and notes when what was acknowledged last."""

    def __init__(self, sending, tps):
        self.sending, self.tps, self.sent = sending, list(tps), 0

    def some(self, rounds=1):
        for _ in range(rounds):
            for tp in self.tps:
                self.sending.send(tp, batch_of(tp, numbered(self.sent, self.sent + AT_ONCE)))
            self.sent += AT_ONCE

    def acknowledged(self, tp):
        return self.sending._boxes[tp].records if tp in self.sending._boxes else 0

    def go_on_until(self, condition, within):
        """Send a little, again and again."""
        deadline = time.monotonic() + within
        while not condition():
            assert time.monotonic() < deadline
            self.some()
            time.sleep(0.02)

    def check(self, kafka3):
        assert self.sending.flush() == dict.fromkeys(self.tps, Written(self.sent, self.sent - 1))
        for tp in self.tps:
            assert differences(numbers(log_of(kafka3, tp)), range(self.sent)) == ""


@pytest.mark.soak
def test_a_leader_that_is_killed_holds_up_no_other_and_costs_no_record(nodes):
    tps = led_by_each(nodes)
    with sender(nodes.bootstrap_servers, **QUICK) as sending:
        load = Load(sending, tps.values())
        load.go_on_until(lambda: all(load.acknowledged(tp) >= 500 for tp in load.tps), within=30)
        nodes.node(0).kill()
        before = {tp: load.acknowledged(tp) for tp in load.tps}
        load.go_on_until(lambda: load.acknowledged(tps[2]) > before[tps[2]] + 500, within=30)
        load.go_on_until(lambda: load.acknowledged(tps[1]) > before[tps[1]] + 500, within=60)  # led by another now
        nodes.node(0).start()
        nodes.wait_until_ready()
        load.some(10)
        load.check(nodes)


@pytest.mark.soak
def test_leaders_that_are_killed_one_after_the_other_cost_no_record(nodes):
    tps = led_by_each(nodes)
    with sender(nodes.bootstrap_servers, **QUICK) as sending:
        load = Load(sending, tps.values())
        for node in nodes.nodes:
            load.some(10)
            node.kill()
            load.some(10)
            node.start()
            nodes.wait_until_ready()
        load.check(nodes)


@pytest.mark.soak
def test_a_leader_that_hangs_is_left_for_the_next_one_while_others_go_on(nodes):
    tps = led_by_each(nodes)
    with sender(nodes.bootstrap_servers, **QUICK) as sending:
        load = Load(sending, tps.values())
        load.go_on_until(lambda: all(load.acknowledged(tp) >= 500 for tp in load.tps), within=30)
        nodes.node(1).pause()
        began = time.monotonic()
        before = {tp: load.acknowledged(tp) for tp in load.tps}
        load.go_on_until(lambda: load.acknowledged(tps[1]) > before[tps[1]] + 500, within=30)
        load.go_on_until(lambda: load.acknowledged(tps[2]) > before[tps[2]] + 500, within=60)
        assert time.monotonic() - began < 45
        nodes.node(1).resume()
        load.some(10)
        load.check(nodes)


@pytest.mark.soak
def test_leaders_that_move_all_the_time_cost_no_record(nodes):
    tps = led_by_each(nodes)
    (topic,) = {tp.topic for tp in tps.values()}
    with sender(nodes.bootstrap_servers, **QUICK) as sending:
        load = Load(sending, tps.values())
        for first in (2, 3, 1, 3):
            load.some()
            replicas = [first, *({1, 2, 3} - {first})]
            moves = {KafkaTopicPartition(*tp): replicas for tp in load.tps}
            nodes.admin.alter_partition_reassignments(moves)
            load.go_on_until(lambda: not nodes.admin.list_partition_reassignments(), within=30)
            partitions = [tp.partition for tp in load.tps]
            nodes.admin.elect_leaders(0, {topic: partitions}, raise_errors=False)
            load.go_on_until(lambda first=first: {nodes.leader(*tp) for tp in load.tps} == {first}, within=30)
        load.check(nodes)


@pytest.mark.soak
def test_a_cluster_that_is_away_for_a_while_is_outlived(nodes):
    tps = led_by_each(nodes)
    with sender(nodes.bootstrap_servers, **QUICK) as sending:
        load = Load(sending, tps.values())
        load.some(20)
        for node in nodes.nodes:
            node.kill()
        load.some(10)

        def come_back():
            for node in nodes.nodes:
                node.start()

        timer = threading.Timer(3, come_back)
        timer.start()
        load.check(nodes)
        timer.join()


@pytest.mark.soak
def test_an_unclean_election_after_which_records_are_gone_fails_the_task(nodes):
    configs = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    topic = nodes.create_topic(name("unclean"), configs=configs)
    tp = TopicPartition(topic, 0)
    nodes.admin.alter_partition_reassignments({KafkaTopicPartition(*tp): [1, 2]})
    wait_until(lambda: in_sync(nodes, *tp) == {1, 2}, within=30)
    nodes.admin.elect_leaders(0, {topic: [0]}, raise_errors=False)
    wait_until(lambda: nodes.leader(*tp) == 1, within=30)
    leader, follower = nodes.node(0), nodes.node(1)
    with sender(nodes.bootstrap_servers, Producing(), **QUICK) as sending:
        load = Load(sending, [tp])
        load.some(4)
        sending.flush()
        follower.kill()
        wait_until(lambda: in_sync(nodes, *tp) == {1}, within=60)
        load.some(4)
        sending.flush()
        leader.kill()
        follower.start()
        nodes.wait_until_ready()
        wait_until(lambda: nodes.leader(*tp) == 2, within=90)
        load.some(2)
        with pytest.raises(WriteError, match=rf"{tp}: rows that the brokers had acknowledged may be lost"):
            sending.flush()
