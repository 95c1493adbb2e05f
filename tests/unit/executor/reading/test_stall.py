"""How long a task has waited for records, by a clock that is set: outages of one partition, and waiting for others."""

import pytest

from spark_kafka_group.errors import BrokerTimeoutError
from spark_kafka_group.executor.reading.stall import Stall
from spark_kafka_group.options import Options
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.outage import TaskOutage

STALLED, FLAPPING = TopicPartition("orders", 0), TopicPartition("orders", 1)
POSITIONS = {STALLED: 7, FLAPPING: 3}
LIMIT_S = 60.0


class Task:
    """Waits for two partitions."""

    last_failure = None

    def __init__(self):
        self.now = 100.0
        options = Options.parse({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"})
        self.outage = TaskOutage(options, self, lambda: self.now, lambda: self.now)
        self.stall = Stall(LIMIT_S, lambda: self.now, self.outage)

    def known(self):
        return ["127.0.0.1:1"]

    def pass_time(self, seconds):
        self.now += seconds
        self.stall.check(POSITIONS)

    def flap(self, away_s, there_s):
        self.outage.missed([FLAPPING], "refused")
        self.pass_time(away_s)
        self.outage.answered([FLAPPING])
        self.pass_time(there_s)


@pytest.fixture
def task():
    return Task()


def test_a_leader_that_is_away_ever_so_often_does_not_hide_that_another_partition_is_stalled(task):
    for _ in range(5):
        task.flap(away_s=LIMIT_S, there_s=LIMIT_S / 6)
    with pytest.raises(BrokerTimeoutError, match=r"no new record of orders-0@7 for 60 s"):
        task.flap(away_s=1, there_s=LIMIT_S / 6)


def test_nothing_is_stalled_while_brokers_are_away_as_they_may_be_why(task):
    task.pass_time(LIMIT_S - 1)
    task.outage.missed([FLAPPING], "refused")
    task.pass_time(10 * LIMIT_S)
    task.outage.answered([FLAPPING])
    assert not task.stall.is_over_limit(STALLED)
    task.now += 1
    assert task.stall.is_over_limit(STALLED)


def test_a_partition_that_was_away_has_all_of_the_time_again(task):
    task.pass_time(LIMIT_S - 1)
    task.outage.missed([STALLED], "refused")
    task.now += 5
    task.outage.answered([STALLED])
    task.now += LIMIT_S - 1
    assert not task.stall.is_over_limit(STALLED)
    task.now += 1
    assert task.stall.is_over_limit(STALLED)


def test_records_of_one_partition_are_the_task_s(task):
    task.pass_time(LIMIT_S - 1)
    task.stall.moved()
    task.pass_time(LIMIT_S - 1)
