"""One Kafka node: its settings, its process, its log; and waiting for a condition instead of sleeping."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from spark_kafka_group.spark.installation import java
from spark_kafka_group.testing import download
from spark_kafka_group.testing.download import jars, logging_jars

LOG4J = """\
rootLogger.level = WARN
rootLogger.appenderRef.stdout.ref = stdout
appender.stdout.type = Console
appender.stdout.name = stdout
appender.stdout.layout.type = PatternLayout
appender.stdout.layout.pattern = %d %p %m (%c)%n%ex
"""

PORTS = range(11_000, 32_000)
"""Ports below those that the system hands out for outgoing connections. A client that keeps trying to reach a stopped
node could otherwise get that very port, connect to itself, and keep the node from coming back."""

KILL_ON_HANGUP = 'read line || kill -9 "$0"'
"""Waits for a line or, when the process that should write it died, for the end of the pipe."""


def free_ports(count: int) -> list[int]:
    """Ports without a listener now."""
    ports: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as sock:
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise RuntimeError(f"no {count} free ports from {PORTS.start} to {PORTS.stop - 1}")


class Node:
    """A Kafka process, broker and controller in one, that can be stopped, killed and started again.

    Parameters
    ----------
    number
        node.id, from 1.
    directory
        Where its settings, log and data are; kept over restarts.
    started
        The folder that the first start of this version left: see `first_start`.
    """

    def __init__(
        self, number: int, directory: Path, properties: Mapping[str, str], version: str, started: Callable[[], Path]
    ) -> None:
        self.number = number
        self.directory = directory
        self.process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._properties = dict(properties)
        self._version = version
        self._started = started
        self._port = int(properties["listeners"].split(",")[0].rpartition(":")[2])

    @property
    def log(self) -> Path:
        """The node's log."""
        return self.directory / "broker.log"

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process is not None and self.process.poll() is None

    def why_ended(self) -> str:
        """How its process ended, as a part of a sentence."""
        code = None if self.process is None else self.process.poll()
        if code is not None and code < 0:
            return f": it was killed by {signal.Signals(-code).name}, perhaps since memory was short"
        return f", with exit code {code}: {self.log} says why"

    def serves(self) -> bool:
        """Whether it takes connections from clients."""
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", self._port)) == 0

    def check_port(self) -> None:
        """Fail at once if another process listens on the port; Kafka would fail after half a minute.

        Raises
        ------
        RuntimeError
            When the port is taken.
        """
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java does
            try:
                sock.bind(("127.0.0.1", self._port))
            except OSError as error:
                raise RuntimeError(
                    f"port {self._port} of 127.0.0.1 cannot be opened: {error}. Take another port, or end the process "
                    f"that has this one"
                ) from error

    def configure(self) -> None:
        """Write the settings."""
        self.directory.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{name}={value}\n" for name, value in self._properties.items())
        (self.directory / "server.properties").write_text(text)
        (self.directory / "log4j2.properties").write_text(LOG4J)

    @property
    def data(self) -> Path:
        """Its data directory."""
        return Path(self._properties["log.dirs"])

    def format(self, cluster_id: str) -> None:
        """Make the data directory, without which Kafka does not start; one of an earlier cluster is kept."""
        if not (self.data / "meta.properties").exists():
            download.copy_data(self._started(), self.data, cluster_id, self.number)

    def format_by_tool(self, cluster_id: str, within_s: float) -> None:
        """The same, as Kafka's own tool does it.

        Raises
        ------
        RuntimeError
            When it fails, or has not ended in time.
        """
        process = self._java("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", "server.properties")
        try:
            failed = process.wait(within_s)
        except subprocess.TimeoutExpired as error:
            process.kill()
            process.wait()
            raise RuntimeError(f"{self.data} was not formatted within {within_s:.0f} s") from error
        if failed:
            raise RuntimeError(f"{self.data} could not be formatted:\n{self.log.read_text(errors='replace')[-2000:]}")

    def start(self, *options: str) -> None:
        """Start the process; does not wait until it serves. `options` are its JVM's."""
        if self.alive:
            return
        self._release()
        self.process = self._java(
            "kafka.Kafka", "server.properties", options=options or download.options(self._started())
        )
        # Tests end by kill -9 too, and then nothing of ours runs any more: no finally, no atexit.
        self._watchdog = subprocess.Popen(
            ["/bin/sh", "-c", KILL_ON_HANGUP, str(self.process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def stop(self) -> None:
        """Shut down in order, as SIGTERM makes Kafka do."""
        self.terminate()
        self._end()

    def kill(self) -> None:
        """kill -9, also of a paused node, which does nothing more."""
        self._signal(signal.SIGKILL)
        self._end()

    def terminate(self) -> None:
        """SIGTERM, without waiting for the end; :meth:`stop` does."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)

    def pause(self) -> None:
        """SIGSTOP: the process lives and, once this has returned, does nothing."""
        assert self.process is not None, "start first"
        self._signal(signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)  # or a thread of it may still answer

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def detach(self) -> int:
        """Let the process outlive this one; returns its id."""
        assert self.process is not None, "start first"
        pid, self.process.returncode = self.process.pid, 0  # or Python warns that it still runs
        self.process = None
        self._release()
        return pid

    def _signal(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def _end(self) -> None:
        if self.process is None:
            return
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self.process.wait()
        self.process = None
        self._release()

    def _release(self) -> None:
        """End the watchdog; the node may live on."""
        if self._watchdog is not None:
            self._watchdog.communicate(b"\n")
            self._watchdog = None

    def _java(self, *arguments: str, options: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        classpath = ":".join(map(str, [*logging_jars(), jars("kafka_2.13", self._version) / "*"]))
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [java(), "-Xmx512m", "-XX:+UseSerialGC", "-Xshare:auto", *options,
                 "-Dlog4j2.configurationFile=log4j2.properties", "-cp", classpath, *arguments],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A Ctrl-C in the terminal is for the tests, which stop the broker when they have ended.
                start_new_session=True,
                env={name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")},
            )  # fmt: skip


PARENT, SESSION = 1, 3  # fields of /proc/<pid>/stat, counted from the state


def children(pid: int) -> list[int]:
    """Ids of a process's living children."""
    return _living(PARENT, pid)


def session(pid: int) -> list[int]:
    """Ids of all living processes of the session that this one leads."""
    return _living(SESSION, pid)


def _living(field: int, value: int) -> list[int]:
    ids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[field]) == value and fields[0] != "Z":
                ids.append(int(entry.name))
    return ids


T = TypeVar("T")


def wait_until(condition: Callable[[], T], within: float, every: float = 0.05) -> T:
    """Call `condition` until it returns something true; return that.

    Parameters
    ----------
    within
        Seconds to wait.
    every
        Seconds between calls.

    Raises
    ------
    TimeoutError
        With the last value `condition` returned.
    """
    deadline = time.monotonic() + within
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise TimeoutError(f"not within {within} s; the last value was {value!r}")
        time.sleep(every)
