"""A reader process leaves its group, and says nothing, whatever interrupts its end."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys

import pytest
from pyspark.serializers import CPickleSerializer, read_int, write_int, write_with_length
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming import python_streaming_source_runner as runner
from support import members, numbered, options, topic_with

from spark_kafka_group import GroupKafkaDataSource
from spark_kafka_group.testing import wait_until
from spark_kafka_group.values.schema import USUAL, arrow_schema

READERS = 8


class Reader:
    """Spark's runner of a stream reader, with Java's side of the connection here."""

    def __init__(self, directory):
        directory.mkdir()
        self._printed = directory / "printed"
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(directory / "socket"))
        listening.listen()
        with self._printed.open("w") as printed:
            self.process = subprocess.Popen(
                [sys.executable, "-m", runner.__name__],
                env=os.environ | {"PYTHON_WORKER_FACTORY_SOCK_PATH": str(directory / "socket")},
                stderr=printed,
            )
        self._socket, _ = listening.accept()
        listening.close()
        self._connection = self._socket.makefile("rwb")

    def begin(self, source):
        """Make the reader."""
        read_int(self._connection)  # its process id
        self._send(f"{sys.version_info.major}.{sys.version_info.minor}", str(self._printed.parent))
        write_int(0, self._connection)  # files to import from
        self._send(CPickleSerializer().dumps(source), from_arrow_schema(arrow_schema(USUAL)).json())
        write_int(10_000, self._connection)  # rows of an Arrow batch
        self._connection.flush()
        assert read_int(self._connection) == 0

    @property
    def printed(self):
        return self._printed.read_text()

    def join(self):
        write_int(runner.INITIAL_OFFSET_FUNC_ID, self._connection)
        self._connection.flush()
        self._initial = self._answer()
        self.ask()
        assert self._answer() != self._initial

    def ask(self):
        """Begin a trigger."""
        write_int(runner.LATEST_OFFSET_ADMISSION_CONTROL_FUNC_ID, self._connection)
        self._send(self._initial, json.dumps({"_type": "ReadAllAvailable"}))
        self._connection.flush()

    def answered(self):
        """Wait for the trigger's end."""
        assert self._answer()

    def close(self):
        """As Java does when the query is stopped."""
        with contextlib.suppress(OSError):
            self._connection.close()
        self._socket.close()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def _answer(self):
        return self._connection.read(read_int(self._connection)).decode()

    def _send(self, *values):
        for value in values:
            write_with_length(value if isinstance(value, bytes) else value.encode(), self._connection)


@pytest.fixture
def started(kafka, tmp_path):
    """Makes a process with a member, by its group."""
    topic = topic_with(kafka, numbered(3, 3))
    with contextlib.ExitStack() as ended:

        def start(group):
            reader = Reader(tmp_path / group)
            ended.callback(reader.kill)
            reader.begin(GroupKafkaDataSource(options(kafka, topic, group)))
            reader.join()
            assert len(members(kafka, group)) == 1
            return reader

        yield start


@pytest.fixture
def readers(started, group):
    """Processes with a member each, by their groups."""
    return {name: started(name) for name in (f"{group}-{number}" for number in range(READERS))}


def test_signals_do_not_interrupt_an_end_that_has_begun(kafka, readers):
    for group, reader in readers.items():
        reader.close()
        while reader.process.poll() is None and members(kafka, group):
            # Not until it has ended: while Python takes itself down, it forgets what it is to do with a signal.
            for _ in range(100):
                reader.process.send_signal(signal.SIGTERM)
        reader.process.wait(60)
        wait_until(lambda group=group: members(kafka, group) == [], within=30)
        assert reader.printed == ""


def test_a_query_that_is_stopped_in_the_middle_of_a_call_ends_without_a_word(kafka, readers):
    for group, reader in readers.items():
        reader.ask()
        reader.close()
        reader.process.wait(60)
        wait_until(lambda group=group: members(kafka, group) == [], within=30)
        assert reader.printed == ""


def test_ctrl_c_is_the_programs_alone(kafka, started, group):
    reader = started(group)
    before = [member["member_id"] for member in members(kafka, group)]
    reader.process.send_signal(signal.SIGINT)
    reader.ask()
    reader.process.send_signal(signal.SIGINT)
    reader.answered()
    assert [member["member_id"] for member in members(kafka, group)] == before
    assert reader.printed == ""
