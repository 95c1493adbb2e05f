"""Records that are lost, or that wait for replicas, on a leader's answers; tests/broker has them in real logs."""

import pytest

from spark_kafka_group.errors import BrokerError
from spark_kafka_group.executor.reading.stall import Stall
from spark_kafka_group.executor.reading.uncommitted import Uncommitted
from spark_kafka_group.options import Options
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.outage import TaskOutage

TP = TopicPartition("orders", 3)
POSITION, COMMITTED = 10, 4


class Leader:
    """Answers where its log ends, of epoch 7."""

    last_failure = None

    def __init__(self, *answers, epochs=((TP, 7),)):
        self.answers = list(answers)
        options = Options.parse({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"})
        self.outage = TaskOutage(options, self)
        stall = Stall(60.0, lambda: 0.0, self.outage)
        self.uncommitted = Uncommitted(self, dict(epochs), stall, self.outage)

    def known(self):
        return ["127.0.0.1:1"]

    def epoch_ends(self, asked):
        assert asked == {TP: 7}
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {} if answer == "unknown" else {TP: (answer, 7)}

    def are_lost(self):
        return self.uncommitted.are_lost(TP, POSITION, COMMITTED)


@pytest.mark.parametrize("end", [COMMITTED, POSITION, None], ids=["shorter", "ends there", "knows no epoch"])
def test_records_that_the_leader_has_not_written_are_lost(end):
    leader = Leader(end)
    assert leader.are_lost()
    assert not leader.outage.away


def test_without_epochs_the_committed_end_is_all_that_is_known():
    assert Leader(epochs=()).are_lost()


def test_records_that_the_leader_has_are_waited_for_until_another_answer_comes():
    leader = Leader(POSITION + 1)
    assert not leader.are_lost()
    assert not leader.are_lost()  # asked once
    assert TP in leader.uncommitted
    leader.uncommitted.answered([TP])  # the same answer, again and again
    assert leader.outage.away
    leader.uncommitted.over(TP)
    assert TP not in leader.uncommitted
    assert not leader.outage.away


@pytest.mark.parametrize("nothing", ["unknown", BrokerError("no answer")], ids=str)
def test_without_an_answer_nothing_is_lost_and_the_leader_is_asked_again(nothing):
    leader = Leader(nothing, COMMITTED)
    assert not leader.are_lost()
    assert not leader.outage.away
    assert leader.are_lost()
