"""Produce requests as kafka-python reads them, and responses as it writes them, in every version; and damaged ones."""

import contextlib
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.client.reachability import AnswerError
from spark_kafka_group.wire.produce.produce_connection import LARGEST_RESPONSE, ProduceConnection
from spark_kafka_group.wire.produce.produce_messages import (
    LONGEST_TEXT,
    VERSIONS,
    ProduceSettings,
    overhead,
    produced,
    request_parts,
)
from spark_kafka_group.wire.reactions import Reaction

EVERY_VERSION = pytest.mark.parametrize("version", VERSIONS)
ORDERS, BILLS = TopicPartition("orders", 7), TopicPartition("Größe", 0)
TOPIC = ProduceResponse.TopicProduceResponse
PARTITION = TOPIC.PartitionProduceResponse


def response(version, *partitions, topic="orders", throttle_ms=0):
    """The bytes of a response, without its correlation id."""
    message = ProduceResponse(
        version=version,
        responses=[TOPIC(name=topic, partition_responses=list(partitions))],
        throttle_time_ms=throttle_ms,
        **({"node_endpoints": []} if version >= 10 else {}),
    )
    message.with_header(5)
    return bytes(message.encode(header=True, framed=True))[8:]


def partition(index=7, error=0, offset=100, **more):
    more = {"log_append_time_ms": -1, "log_start_offset": 3, "record_errors": [], "error_message": None} | more
    return PARTITION(index=index, error_code=error, base_offset=offset, **more)


@EVERY_VERSION
@pytest.mark.parametrize("transactional_id", [None, "ours-3"])
def test_a_request_is_what_kafka_python_would_have_written(version, transactional_id):
    batches = {ORDERS: b"a batch" * 30, BILLS: bytearray(b"another"), TopicPartition("orders", 1): memoryview(b"third")}
    settings = ProduceSettings("all", 12_345, transactional_id)
    parts = request_parts(batches, version, 77, "ours-executor", settings)
    written = b"".join(parts)
    assert struct.unpack_from(">i", written) == (len(written) - 4,)
    read = ProduceRequest.decode(written[4:], version=version, header=True)
    assert read.header.correlation_id == 77
    assert read.header.client_id == "ours-executor"
    assert (read.transactional_id, read.acks, read.timeout_ms) == (transactional_id, -1, 12_345)
    found = {TopicPartition(t.name, p.index): bytes(p.records) for t in read.topic_data for p in t.partition_data}
    assert found == {tp: bytes(batch) for tp, batch in batches.items()}
    assert len(read.topic_data) == 2
    one = b"".join(request_parts({BILLS: batches[BILLS]}, version, 77, "ours-executor", settings))
    none = b"".join(request_parts({}, version, 77, "ours-executor", settings))
    assert len(one) - len(none) - len(batches[BILLS]) <= overhead(BILLS)


def test_record_batches_are_in_a_request_and_not_copied():
    batch = bytearray(b"records")
    parts = request_parts({ORDERS: batch}, 9, 1, "ours", ProduceSettings("1", 1))
    assert any(part.obj is batch for part in parts)


@EVERY_VERSION
def test_a_response_is_read_with_offsets_errors_and_the_brokers_words(version):
    refused = partition(
        8,
        error=87,
        offset=-1,
        record_errors=[
            PARTITION.BatchIndexAndErrorMessage(batch_index=0, batch_index_error_message="no key"),
            PARTITION.BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message=None),
        ],
        error_message="one or more records have been rejected",
    )
    throttle_ms, partitions = produced(memoryview(response(version, partition(), refused, throttle_ms=250)), version)
    assert throttle_ms == 250
    written, rejected = partitions
    assert written[:4] == (ORDERS, None, 100, 3 if version >= 5 else -1)
    assert (rejected.tp, rejected.error.name) == (TopicPartition("orders", 8), "INVALID_RECORD")
    assert rejected.error.reaction is Reaction.BATCH_REFUSED
    assert "compacted" in rejected.error.advice
    assert rejected.message == ("no key; one or more records have been rejected" if version >= 8 else "")


def test_hints_about_a_leader_are_passed_over():
    moved = partition(error=6, current_leader=PARTITION.LeaderIdAndEpoch(leader_id=2, leader_epoch=9))
    message = ProduceResponse(
        version=10,
        responses=[TOPIC(name="orders", partition_responses=[moved])],
        throttle_time_ms=0,
        node_endpoints=[ProduceResponse.NodeEndpoint(node_id=2, host="there", port=9092, rack=None)],
    )
    message.with_header(5)
    _, (answer,) = produced(memoryview(bytes(message.encode(header=True, framed=True))[8:]), 10)
    assert answer.error.reaction is Reaction.FIND_LEADER


def test_a_brokers_words_are_cut_short():
    told = response(9, partition(error=87, error_message="x" * 30_000))
    assert len(produced(memoryview(told), 9)[1][0].message) == LONGEST_TEXT


@pytest.mark.parametrize("version", [3, 8, 9, 12])
@given(data=st.data())
def test_damaged_responses_are_refused_or_read_but_nothing_else_happens(version, data):
    whole = bytearray(response(version, partition(), partition(8, error=87, error_message="why"), throttle_ms=1))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(whole) - 1))
        match data.draw(st.sampled_from(["flip", "cut", "insert"])):
            case "flip":
                whole[at] = data.draw(st.integers(0, 255))
            case "cut":
                del whole[at:]
                break
            case "insert":
                whole[at:at] = data.draw(st.binary(min_size=1, max_size=4))
    with contextlib.suppress(ValueError, struct.error):
        produced(memoryview(bytes(whole)), version)


@EVERY_VERSION
def test_a_response_that_is_cut_off_or_too_long_is_none(version):
    whole = response(version, partition(), partition(8))
    for end in range(len(whole)):
        with pytest.raises((ValueError, struct.error)):
            produced(memoryview(whole[:end]), version)
    with pytest.raises(ValueError, match="1 bytes are left over"):
        produced(memoryview(whole + b"\0"), version)


@pytest.fixture
def connected():
    """The other end of a connection, and the connection, on which orders-7 was sent."""
    ours, theirs = socket.socketpair()
    connection = ProduceConnection(ours, "ours", 9)
    connection.send({ORDERS: b"records"}, ProduceSettings("all", 1), "asked")
    yield theirs, connection
    connection.close()
    theirs.close()


def framed(body, correlation_id=1):
    return struct.pack(">ii", len(body) + 4, correlation_id) + body


def test_a_response_may_come_in_pieces_and_several_at_once(connected):
    theirs, connection = connected
    connection.send({ORDERS: b"more"}, ProduceSettings("all", 1), "asked again")
    sent = framed(response(9, partition())) + framed(response(9, partition(offset=101)), 2)
    assert connection.read() == []
    theirs.sendall(sent[:11])
    assert connection.read() == []
    theirs.sendall(sent[11:])
    answers = connection.read()
    assert [answer.asked for answer in answers] == ["asked", "asked again"]
    assert [answer.partitions[0].base_offset for answer in answers] == [100, 101]
    assert connection.idle


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (framed(response(9, partition()), 2), "belongs to another request"),
        (framed(response(9, partition(8))), "about other partitions"),
        (framed(response(9, partition(), partition())), "about other partitions"),
        (framed(response(9, topic="orders")), "about other partitions"),
        (framed(response(9, partition())[:-1]), "not a produce response"),
        (struct.pack(">i", -1), "gives its length as -1"),
        (struct.pack(">i", LARGEST_RESPONSE + 1), "gives its length as"),
    ],
)
def test_bytes_that_are_not_the_response_end_the_connection(connected, sent, why):
    theirs, connection = connected
    theirs.sendall(sent)
    with pytest.raises(AnswerError, match=why):
        connection.read()


def test_a_connection_that_ends_after_a_response_has_both(connected):
    theirs, connection = connected
    theirs.sendall(framed(response(9, partition())))
    theirs.close()
    assert [answer.asked for answer in connection.read()] == ["asked"]
    for _ in range(2):
        with pytest.raises(ConnectionError):
            connection.read()


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (framed(response(9, partition())), "nothing asked for"),
        (struct.pack(">i", -1), "gives its length as -1"),
    ],
)
def test_a_response_before_bytes_that_are_none_is_returned_first(connected, second, why):
    theirs, connection = connected
    theirs.sendall(framed(response(9, partition())) + second)
    assert [answer.asked for answer in connection.read()] == ["asked"]
    for _ in range(2):
        with pytest.raises(AnswerError, match=why):
            connection.read()


def test_a_request_goes_as_the_broker_takes_it_and_arrives_whole(connected):
    theirs, connection = connected
    batches = {TopicPartition("orders", n): b"%d" % n * 2_000 for n in range(1_500)}
    connection.send(batches, ProduceSettings("all", 1), "large")
    assert connection.unsent
    theirs.setblocking(False)
    received = bytearray()
    while connection.unsent:
        received += theirs.recv(1 << 16)
        connection.write()
    while True:
        try:
            received += theirs.recv(1 << 16)
        except BlockingIOError:
            break
    (first,) = struct.unpack_from(">i", received)
    read = ProduceRequest.decode(bytes(received[4 + first + 4 :]), version=9, header=True)
    found = {TopicPartition(t.name, p.index): bytes(p.records) for t in read.topic_data for p in t.partition_data}
    assert found == batches


def test_without_acks_no_response_is_waited_for(connected):
    _, connection = connected
    before = connection.in_flight
    connection.send({ORDERS: b"records"}, ProduceSettings("0", 1), "asked")
    assert connection.in_flight == before
    assert not connection.unsent
