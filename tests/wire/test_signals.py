"""A signal that comes while kafka-python's event loop runs on the main thread is never lost."""

import os
import random
import signal
import threading
import time

import pytest
from test_outages import BRIEF

from spark_kafka_group.options import Options
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire import Brokers
from spark_kafka_group.wire.client.event_loop import put_off

ORDERS = [TopicPartition("orders", 0)]


class EndedError(BaseException):
    """The handler's exception."""


@pytest.fixture(params=[signal.SIGTERM, signal.SIGINT])
def number(request):
    """A signal whose handler raises."""

    def ended(number, frame):
        raise EndedError

    before = signal.signal(request.param, ended)
    yield request.param
    signal.signal(request.param, before)


def look_up_for_ten_seconds(brokers, sender):
    sender.start()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        brokers.leaders(ORDERS, refresh=True)


def test_a_signal_ends_lookups_wherever_it_comes(broker, number):
    brokers = Brokers(Options.parse({"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders"}))
    try:
        for _ in range(60):
            brokers.leaders(ORDERS, refresh=True)
            sender = threading.Timer(random.random() / 100, os.kill, (os.getpid(), number))
            with pytest.raises(EndedError):
                look_up_for_ten_seconds(brokers, sender)
            sender.join()
    finally:
        brokers.close()


def test_a_signal_does_not_wait_for_a_broker_that_is_silent(broker, number):
    options = BRIEF | {"kafka.request.timeout.ms": "60000", "kafka.connections.max.idle.ms": "90000"}
    brokers = Brokers(
        Options.parse({"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders"} | options)
    )
    try:
        brokers.leaders(ORDERS, refresh=True)
        broker.silence(1, 2)
        sender = threading.Timer(0.2, os.kill, (os.getpid(), number))
        began = time.monotonic()
        with pytest.raises(EndedError):
            look_up_for_ten_seconds(brokers, sender)
        assert time.monotonic() - began < 20
    finally:
        brokers.close()


def come_twice(number):
    with put_off(lambda: None):
        signal.raise_signal(number)
        signal.raise_signal(number)


def test_handlers_are_back_afterwards_and_run_once(number):
    before = signal.getsignal(number)
    with pytest.raises(EndedError):
        come_twice(number)
    assert signal.getsignal(number) is before


def comes_as_a_call_fails(number):
    with put_off(lambda: None):
        signal.raise_signal(number)
        raise ConnectionError


def test_a_signal_that_comes_as_a_call_fails_is_not_lost(number):
    before = signal.getsignal(number)
    with pytest.raises(EndedError):
        comes_as_a_call_fails(number)
    assert signal.getsignal(number) is before


def test_signals_that_are_ignored_stay_ignored():
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with put_off(lambda: None):
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
