"""Processes of Spark's: connections acknowledge at once, and one that Spark has hung up on ends without a traceback."""

import json
import os
import pickle
import socket
import struct
import subprocess
import sys

import pytest

from spark_kafka_group import GroupKafkaDataSource
from spark_kafka_group.spark import spark_processes

pytestmark = pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="Linux only")
SETTINGS = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
WORKER = """
import json, pickle, socket, struct, sys

connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
pieces = connection.makefile("rb")


def received():
    return pieces.read(*struct.unpack(">i", pieces.read(4)))


def acknowledgements():
    names = (socket.TCP_QUICKACK, socket.TCP_NODELAY)
    return [connection.getsockopt(socket.IPPROTO_TCP, name) for name in names]


def answer(value):
    connection.sendall(json.dumps(value).encode() + b"\\n")


connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)  # as after an answer
before = acknowledgements()
reader = pickle.loads(received())
answer([type(reader).__name__, before, acknowledgements()])
for _ in range(2):  # the kernel goes back to delayed ones
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
    pickle.loads(received())
    answer(acknowledgements())
"""


def stream_reader():
    return GroupKafkaDataSource(SETTINGS).streamReader(None)


def batch_reader():
    return GroupKafkaDataSource(SETTINGS).reader(None)


def pushing_down():
    return GroupKafkaDataSource(SETTINGS | {"pushDownPredicate": "true"}).reader(None)


@pytest.fixture
def spark_connections():
    """This process's connections are looked up again, before the test and after it."""
    spark_processes._spark_connections.cache_clear()
    yield lambda: set(spark_processes._spark_connections(os.getpid()))
    spark_processes._spark_connections.cache_clear()


@pytest.fixture
def opened():
    """Closes its items."""
    things = []
    yield things
    for thing in things:
        thing.close()


def connected(opened, address="127.0.0.1", family=socket.AF_INET):
    """A listening socket, and both ends of a connection to it; small pieces wait on both, and ACKs on the first."""
    listening = socket.create_server((address, 0), family=family)
    ours = socket.create_connection(listening.getsockname()[:2])
    theirs, _ = listening.accept()
    ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
    opened += [listening, ours, theirs]
    return listening, ours, theirs


def at_once(connection):
    """Whether it acknowledges at once, and sends at once."""
    return tuple(
        bool(connection.getsockopt(socket.IPPROTO_TCP, name)) for name in (socket.TCP_QUICKACK, socket.TCP_NODELAY)
    )


@pytest.mark.parametrize("reader", [stream_reader, batch_reader, pushing_down])
def test_a_worker_that_unpickles_a_reader_acknowledges_at_once(reader):
    sent = pickle.dumps(reader())
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60)
        port = str(listening.getsockname()[1])
        with subprocess.Popen([sys.executable, "-c", WORKER, port]) as worker:
            connection, _ = listening.accept()
            with connection, connection.makefile("rb") as answers:
                assert not connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)  # Nagle, as on Spark's side
                connection.sendall(struct.pack(">i", len(sent)))
                connection.sendall(sent)
                assert json.loads(answers.readline()) == [type(reader()).__name__, [0, 0], [1, 1]]
                for _ in range(2):
                    connection.sendall(struct.pack(">i", len(sent)) + sent)
                    assert json.loads(answers.readline()) == [1, 1]
                assert answers.read() == b""
    assert worker.returncode == 0


def test_only_connections_within_this_machine_are_touched(spark_connections, opened, tmp_path):
    listening, ours, theirs = connected(opened)
    unconnected, datagrams = socket.socket(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.connect(("127.0.0.1", 9))
    opened += [unconnected, datagrams, *socket.socketpair()]
    file = (tmp_path / "file").open("w+")
    opened += [file, *(os.fdopen(end, mode) for end, mode in zip(os.pipe(), "rw", strict=True))]
    untouched = [thing.fileno() for thing in opened if thing not in (ours, theirs)]
    descriptors = len(os.listdir("/proc/self/fd"))
    found = spark_connections()
    assert {ours.fileno(), theirs.fileno()} <= found
    assert not found & set(untouched)
    spark_processes.acknowledge_at_once()
    assert at_once(ours) == (True, True)
    assert not listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert not unconnected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert len(os.listdir("/proc/self/fd")) == descriptors
    file.write("still open")
    ours.sendall(b"still open")
    assert theirs.recv(100) == b"still open"


def test_a_connection_within_this_machine_by_ipv6_is_found(spark_connections, opened):
    try:
        _, ours, _ = connected(opened, "::1", socket.AF_INET6)
    except OSError as error:
        pytest.skip(f"no IPv6: {error}")
    spark_processes.acknowledge_at_once()
    assert at_once(ours) == (True, True)


def test_a_connection_to_another_address_is_left_alone(spark_connections, opened):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outward:
        try:
            outward.connect(("192.0.2.1", 9))  # sends nothing; where it would go out tells an address of this machine
        except OSError as error:
            pytest.skip(f"no network: {error}")
        address = outward.getsockname()[0]
    if address.startswith("127."):
        pytest.skip("no address but loopback's")
    _, ours, theirs = connected(opened, address)
    assert not spark_connections() & {ours.fileno(), theirs.fileno()}
    spark_processes.acknowledge_at_once()
    assert at_once(ours) == (False, False)


def test_a_descriptor_that_was_closed_does_no_harm_nor_does_what_takes_its_number(spark_connections, opened, tmp_path):
    _, ours, theirs = connected(opened)
    spark_processes.acknowledge_at_once()
    number = ours.fileno()
    with (tmp_path / "file").open("wb") as file:
        ours.close()
        spark_processes.acknowledge_at_once()
        os.dup2(file.fileno(), number)
    spark_processes.acknowledge_at_once()
    os.write(number, b"still open")
    os.close(number)
    assert (tmp_path / "file").read_text() == "still open"
    assert at_once(theirs)[1]


def test_a_timeout_for_sockets_made_from_now_on_is_not_one_for_sparks(spark_connections, opened):
    _, ours, theirs = connected(opened)
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(5)  # a user's code may say so in a worker
    try:
        assert ours.fileno() in spark_connections()
        spark_processes.acknowledge_at_once()
    finally:
        socket.setdefaulttimeout(before)
    assert at_once(ours) == (True, True)
    assert os.get_blocking(ours.fileno())
    assert os.get_blocking(theirs.fileno())


DAEMON = """
import importlib.util, sys, traceback
from spark_kafka_group.spark.spark_processes import end_quietly

end_quietly()
assert traceback is sys.modules["traceback"]  # in a program of the user's
__spec__ = importlib.util.find_spec("pyspark.daemon")
end_quietly()
for error in (BrokenPipeError(), ValueError("else")):
    try:
        raise error
    except BaseException:
        traceback.print_exc()
"""


def test_a_daemon_s_worker_prints_no_broken_pipe_and_every_other_error(python):
    printed = python("-c", DAEMON).stderr
    assert printed.count("Traceback") == 1
    assert printed.endswith("ValueError: else\n")


READER = """
import importlib.util
from spark_kafka_group.spark.spark_processes import READER, end_quietly

__spec__ = importlib.util.find_spec(READER)
end_quietly()
raise """


@pytest.mark.parametrize(
    ("error", "last_lines"), [("BrokenPipeError()", []), ("ValueError('else')", ["ValueError: else"])]
)
def test_a_reader_s_process_prints_no_broken_pipe_and_every_other_error(error, last_lines, python):
    ended = python("-c", READER + error)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1:] == last_lines
