"""Records that tasks hand on: how long they wait, by the brokers' answers."""

import contextlib

import pytest

from spark_kafka_group.errors import BrokerError
from spark_kafka_group.offsets import TopicPartition
from spark_kafka_group.options import Options
from spark_kafka_group.testing import wait_until
from spark_kafka_group.wire import delivery
from spark_kafka_group.wire.delivery import Delivery

ORDERS = TopicPartition("orders", 1)
BRIEF = {"subscribe": "orders", "kafka.request.timeout.ms": "1000", "kafka.fetch.max.wait.ms": "100"}


@pytest.fixture
def sent(broker, monkeypatch):
    """Sends a record as a stream's task, with a request timeout as limit; returns the result."""
    monkeypatch.setattr(delivery, "ATTEMPTS_WITHIN", 1)
    with contextlib.ExitStack() as opened:

        def send(**more):
            options = Options.parse({"kafka.bootstrap.servers": broker.bootstrap_servers} | BRIEF | more)
            sending = opened.enter_context(contextlib.closing(Delivery(options, outlives=True)))
            settled = []
            sending.send(*ORDERS, None, b"v", (), settled.append)
            return settled

        yield send


def test_an_error_that_a_leader_with_all_its_replicas_repeats_is_no_outage(broker, sent):
    broker.refuses = "NOT_ENOUGH_REPLICAS"
    settled = sent()
    wait_until(lambda: settled, within=30)
    assert f"sending to {ORDERS}: not acknowledged for 1 s (1 x kafka.request.timeout.ms): " in str(settled[0])
    assert "NotEnoughReplicasError" in str(settled[0])


def test_a_leader_that_waits_for_its_replicas_in_vain_is_an_outage(broker, sent):
    broker.refuses = "REQUEST_TIMED_OUT"
    settled = sent()
    with pytest.raises(TimeoutError):
        wait_until(lambda: settled, within=2.5)
    broker.refuses = None
    wait_until(lambda: settled, within=30)
    assert settled == [None]
    assert broker.written == {ORDERS: 1}


def test_records_find_brokers_that_are_all_back_at_other_addresses(broker, sent):
    with broker.entrance() as address:
        broker.refuses = "REQUEST_TIMED_OUT"
        settled = sent(**{"kafka.bootstrap.servers": address})
        wait_until(lambda: broker.refused, within=30)
        broker.go_away()
        broker.come_back(elsewhere=True)
        broker.refuses = None  # only now: what is written as the broker goes, and not answered, is sent again
        wait_until(lambda: settled, within=30)
    assert settled == [None]
    assert broker.written == {ORDERS: 1}


def test_a_producer_id_is_asked_for_again_where_no_broker_answers(broker, sent):
    broker.takes_s["InitProducerId"] = 3.0
    settled = sent()
    with pytest.raises(TimeoutError):
        wait_until(lambda: settled, within=2.5)
    broker.takes_s.clear()
    wait_until(lambda: settled, within=30)
    assert settled == [None]
    assert broker.written == {ORDERS: 1}


def test_what_was_given_up_before_there_was_a_connection_is_not_sent_after_all(broker, monkeypatch):
    monkeypatch.setattr(delivery, "CLOSED_WITHIN_S", 0.1)
    slow = {"kafka.request.timeout.ms": "60000", "kafka.socket.connection.setup.timeout.ms": "500"}
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    broker.silence(1, 2)
    sending, settled = Delivery(Options.parse(servers | BRIEF | slow), outlives=True), []
    sending.send(*ORDERS, None, b"v", (), settled.append)
    wait_until(lambda: broker.open, within=30)
    sending.close()
    assert isinstance(settled[0], BrokerError)
    broker.silence()
    wait_until(lambda: not sending._thread.is_alive(), within=60)
    assert broker.written == {}
