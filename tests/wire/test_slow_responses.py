"""A slow response has the request's whole time; a missing one a little longer each time."""

import contextlib
import socket
import struct
import threading
import time

import pytest

from spark_kafka_group.options import Options
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire import FetchConnection
from spark_kafka_group.wire.fetch import fetch_connection

QUICK = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders", "kafka.fetch.max.wait.ms": "0"}
POSITIONS = {TopicPartition("orders", 0): 5}
VERSION = 10
PATIENCE_S = 0.3


@pytest.fixture
def broker(monkeypatch):
    """The other end of a connection, and the connection."""
    monkeypatch.setattr(fetch_connection, "OVERDUE_S", PATIENCE_S)
    ours, theirs = socket.socketpair()
    connection = FetchConnection(ours, Options.parse(QUICK), "executor", VERSION)
    yield theirs, connection
    connection.close()
    theirs.close()


@pytest.fixture
def hurried(broker):
    """As `broker`, with a request timeout of half a second, and what sends bytes one by one until the test ends."""
    theirs, connection = broker
    options = Options.parse(QUICK | {"kafka.request.timeout.ms": "500"})
    ended = threading.Event()
    threads = []

    def drip(what):
        def send():
            with contextlib.suppress(OSError):
                for at in range(len(what)):
                    theirs.sendall(what[at : at + 1])
                    if ended.wait(PATIENCE_S / 3):
                        return

        threads.append(threading.Thread(target=send))
        threads[-1].start()

    yield theirs, FetchConnection(connection._sock, options, "executor", VERSION), drip
    ended.set()
    for thread in threads:
        thread.join()


def response(correlation_id, size=0):
    """A fetch response with so many bytes of records, and its frame."""
    topic = struct.pack(">ih6si", 1, 6, b"orders", 1)
    partition = struct.pack(">ihqqqii", 0, 0, 100, 100, 0, 0, size) + bytes(size)
    body = struct.pack(">iihi", correlation_id, 0, 0, 0) + topic + partition
    return struct.pack(">i", len(body)) + body


def test_bytes_that_come_slowly_are_waited_for(broker):
    theirs, connection = broker
    connection.send(POSITIONS)
    sent = response(1, size=1000)

    def trickle():
        for at in range(0, len(sent), 100):
            time.sleep(PATIENCE_S / 2)
            theirs.sendall(sent[at : at + 100])

    thread = threading.Thread(target=trickle)
    thread.start()
    (partition,) = connection.receive()
    thread.join()
    assert len(partition.records) == 1000


@pytest.mark.parametrize("sent", [0, 2, 4, 500], ids="{} bytes".format)
def test_a_response_that_does_not_begin_or_stops_half_way_is_overdue(broker, sent):
    theirs, connection = broker
    connection.send(POSITIONS)
    theirs.sendall(response(1, size=1000)[:sent])
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"nothing has come for 0\.3 s"):
        connection.receive()
    assert PATIENCE_S <= time.monotonic() - began < 100 * PATIENCE_S


def test_patience_with_a_broker_that_is_slow_lasts_as_long_as_it_is(broker):
    theirs, connection = broker
    slow = FetchConnection(connection._sock, Options.parse(QUICK), "executor", VERSION, patience_s=8 * PATIENCE_S)
    for number, pause_s in enumerate((3 * PATIENCE_S, 0.0), start=1):
        slow.send(POSITIONS)
        threading.Timer(pause_s, theirs.sendall, [response(number)]).start()
        assert slow.receive()
        assert slow.patience_s == pytest.approx(max(2 * pause_s, PATIENCE_S), rel=0.5)


@pytest.mark.parametrize("whole", [0, 500], ids="{} bytes at once".format)
def test_a_response_of_which_a_byte_comes_now_and_then_ends_with_the_request_timeout(hurried, whole):
    theirs, connection, drip = hurried
    connection.send(POSITIONS)
    sent = response(1, size=1000)
    theirs.sendall(sent[:whole])
    drip(sent[whole:])
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"bytes have come within kafka.request.timeout.ms .500.: .*fetch.max.bytes"):
        connection.receive()
    assert 0.5 <= time.monotonic() - began < 30


def test_after_a_response_that_just_made_it_the_next_one_has_all_its_time(hurried):
    theirs, connection, _ = hurried
    connection.send(POSITIONS)
    connection._limit(0.001)  # what was left for it
    timer = threading.Timer(PATIENCE_S / 3, theirs.sendall, [response(1)])
    timer.start()
    assert connection.receive()
    timer.join()


def test_a_request_that_is_taken_a_little_at_a_time_ends_with_the_request_timeout(hurried):
    theirs, connection, _ = hurried
    for end in (theirs, connection._sock):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    ended = threading.Event()

    def sip():
        while not ended.wait(PATIENCE_S / 3):
            theirs.recv(64)

    thread = threading.Thread(target=sip)
    thread.start()
    began = time.monotonic()
    with pytest.raises(TimeoutError, match="bytes of a request are not taken"):
        connection.send({TopicPartition("orders", number): 5 for number in range(20_000)})
    assert time.monotonic() - began < 30
    ended.set()
    thread.join()


def test_a_pause_that_a_broker_asks_for_is_as_long_as_a_task_may_wait(broker):
    theirs, connection = broker
    connection.send(POSITIONS)
    throttled = bytearray(response(1))
    struct.pack_into(">i", throttled, 8, 2**31 - 1)
    theirs.sendall(throttled)
    connection.receive()
    assert connection.throttled_s == 120
