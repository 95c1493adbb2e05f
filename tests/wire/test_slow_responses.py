"""What comes over a connection slowly is waited for; what does not come is not, a little longer each time."""

import socket
import struct
import threading
import time

import pytest

from spark_kafka_group.offsets import TopicPartition
from spark_kafka_group.options import Options
from spark_kafka_group.wire import FetchConnection, fetch

QUICK = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders", "kafka.fetch.max.wait.ms": "0"}
POSITIONS = {TopicPartition("orders", 0): 5}
VERSION = 11
PATIENCE_S = 0.3


@pytest.fixture
def broker(monkeypatch):
    """The other end of a connection, and the connection."""
    monkeypatch.setattr(fetch, "OVERDUE_S", PATIENCE_S)
    ours, theirs = socket.socketpair()
    connection = FetchConnection(ours, Options.parse(QUICK), "executor", VERSION)
    yield theirs, connection
    connection.close()
    theirs.close()


def response(correlation_id, size=0):
    """A fetch response with so many bytes of records, and its frame."""
    topic = struct.pack(">ih6si", 1, 6, b"orders", 1)
    partition = struct.pack(">ihqqqiii", 0, 0, 100, 100, 0, 0, -1, size) + bytes(size)
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
    assert PATIENCE_S <= time.monotonic() - began < 10 * PATIENCE_S


def test_patience_with_a_broker_that_is_slow_lasts_as_long_as_it_is(broker):
    theirs, connection = broker
    slow = FetchConnection(connection._sock, Options.parse(QUICK), "executor", VERSION, patience_s=8 * PATIENCE_S)
    for number, pause_s in enumerate((3 * PATIENCE_S, 0.0), start=1):
        slow.send(POSITIONS)
        threading.Timer(pause_s, theirs.sendall, [response(number)]).start()
        assert slow.receive()
        assert slow.patience_s == pytest.approx(max(2 * pause_s, PATIENCE_S), rel=0.5)
