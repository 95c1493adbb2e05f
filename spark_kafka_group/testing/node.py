"""One Kafka node: its settings, its process, its log."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from spark_kafka_group.testing.download import jars, java

LOG4J = """\
rootLogger.level = WARN
rootLogger.appenderRef.stdout.ref = stdout
appender.stdout.type = Console
appender.stdout.name = stdout
appender.stdout.layout.type = PatternLayout
appender.stdout.layout.pattern = %d %p %m (%c)%n
"""


def free_ports(count: int) -> list[int]:
    """Ports on which nobody listens now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()


class Node:
    """A Kafka process, broker and controller in one, that can be stopped, killed and started again.

    Parameters
    ----------
    number
        node.id, from 1.
    directory
        Where its settings, log and data are; kept over restarts.
    """

    def __init__(self, number: int, directory: Path, properties: Mapping[str, str], version: str) -> None:
        self.number = number
        self.directory = directory
        self.process: subprocess.Popen[bytes] | None = None
        self._version = version
        self._port = int(properties["listeners"].split(",")[0].rpartition(":")[2])
        directory.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{name}={value}\n" for name, value in properties.items())
        (directory / "server.properties").write_text(text)
        (directory / "log4j2.properties").write_text(LOG4J)

    @property
    def log(self) -> Path:
        """What the node says."""
        return self.directory / "broker.log"

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process is not None and self.process.poll() is None

    def serves(self) -> bool:
        """Whether it takes connections from clients."""
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", self._port)) == 0

    def format(self, cluster_id: str) -> subprocess.Popen[bytes]:
        """Begin to make the data directory; Kafka does not start without."""
        command = [
            "kafka.tools.StorageTool",
            "format",
            "-t",
            cluster_id,
            "-c",
            "server.properties",
            "--ignore-formatted",
        ]
        return self._java(*command, heap="128m")

    def start(self) -> None:
        """Start the process; does not wait until it serves."""
        if not self.alive:
            self.process = self._java("kafka.Kafka", "server.properties", heap="512m")

    def stop(self) -> None:
        """Shut down in order, as SIGTERM makes Kafka do."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """SIGSTOP: the process lives and does nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def detach(self) -> int:
        """Let the process outlive this one; returns its id."""
        assert self.process is not None, "start first"
        pid, self.process.returncode = self.process.pid, 0  # or Python warns that it still runs
        self.process = None
        return pid

    def _signal(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def _end(self, number: int) -> None:
        if self.process is None:
            return
        self._signal(signal.SIGCONT)
        self._signal(number)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self.process.wait()
        self.process = None

    def _java(self, *arguments: str, heap: str) -> subprocess.Popen[bytes]:
        classpath = str(jars("kafka_2.13", self._version) / "*")
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [java(), f"-Xmx{heap}", "-XX:+UseSerialGC", "-Xshare:auto",
                 "-Dlog4j2.configurationFile=log4j2.properties", "-cp", classpath, *arguments],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A Ctrl-C in the terminal is for the tests, which stop the broker when they have ended.
                start_new_session=True,
                env={name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")},
            )  # fmt: skip
