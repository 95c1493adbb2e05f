"""Processes of a cluster: a standalone master, its workers, a Spark Connect server."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from installation import Installation

from spark_kafka_group.testing import wait_until
from spark_kafka_group.testing.node import KILL_ON_HANGUP, children, free_ports

UP_WITHIN_S = 90


class Daemon:
    """A JVM that runs until it is killed, or the tests are.

    Parameters
    ----------
    within
        The beginning of its command: that of another host.
    """

    def __init__(
        self,
        installed: Installation,
        directory: Path,
        script: str,
        *arguments: object,
        within: Sequence[str] = (),
        **more: str,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.log = directory / "log"
        with self.log.open("ab") as log:
            # Spark's scripts become the JVM they start: this is its process id.
            self.process = subprocess.Popen(
                [*within, "bash", str(installed.spark_home / "bin" / script), *map(str, arguments)],
                cwd=directory,
                env=installed.environment(**more),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._watchdog = subprocess.Popen(
            ["/bin/sh", "-c", KILL_ON_HANGUP, str(self.process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def wait_for(self, condition: object) -> None:
        """Wait for a condition while the process lives; its log is the error message."""

        def reached() -> bool:
            assert self.process.poll() is None, self.log.read_text()[-4000:]
            return bool(condition())  # type: ignore[operator]

        wait_until(reached, within=UP_WITHIN_S)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End it, and wait for that."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._watchdog.communicate(b"\n")


class Worker(Daemon):
    """A worker, whose executors are its child processes."""

    def executors(self) -> list[int]:
        """Process ids."""
        return children(self.process.pid)


class Standalone:
    """A standalone cluster of one master and two workers, each a process, and all with the same installation."""

    def __init__(self, installed: Installation, directory: Path, workers: int = 2) -> None:
        self._installed, self._directory = installed, directory
        port, self._ui = free_ports(2)
        self.url = f"spark://127.0.0.1:{port}"
        self._master = Daemon(
            installed, directory / "master", "spark-class", "org.apache.spark.deploy.master.Master",
            "--host", "127.0.0.1", "--port", port, "--webui-port", self._ui,
        )  # fmt: skip
        self.workers: list[Worker] = []
        self._master.wait_for(lambda: self._state() is not None)
        for _ in range(workers):
            self.start_worker()
        self.wait_for_workers()

    def start_worker(self) -> Worker:
        """One more worker; does not wait until the master knows it."""
        directory = self._directory / f"worker{len(self.workers)}"
        (ui,) = free_ports(1)
        worker = Worker(
            self._installed, directory, "spark-class", "org.apache.spark.deploy.worker.Worker",
            "--host", "127.0.0.1", "--webui-port", ui, "--cores", 4, "--memory", "4g", "--work-dir", directory,
            self.url,
        )  # fmt: skip
        self.workers.append(worker)
        return worker

    def alive(self) -> list[Worker]:
        """Workers that run."""
        return [worker for worker in self.workers if worker.process.poll() is None]

    def wait_for_workers(self) -> None:
        """Wait until the master knows of those that run, and of no others."""
        self._master.wait_for(lambda: (self._state() or {}).get("aliveworkers") == len(self.alive()))

    def _state(self) -> dict[str, int] | None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._ui}/json/", timeout=5) as answer:
                return json.load(answer)
        except (OSError, ValueError):  # the page is there, as HTML, a moment before its JSON is
            return None

    def stop(self) -> None:
        """End workers and master."""
        for daemon in [*self.workers, self._master]:
            daemon.stop(signal.SIGKILL)


def connect_server(installed: Installation, directory: Path, *conf: str) -> tuple[Daemon, str]:
    """Start a Spark Connect server; returns it and its address."""
    (port,) = free_ports(1)
    settings = [*conf, "spark.connect.grpc.binding.address=127.0.0.1", f"spark.connect.grpc.binding.port={port}"]
    server = Daemon(
        installed, directory, "spark-submit", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
        *[part for setting in settings for part in ("--conf", setting)], "spark-internal",
    )  # fmt: skip
    server.wait_for(lambda: "Spark Connect server started" in server.log.read_text())
    return server, f"sc://127.0.0.1:{port}"
