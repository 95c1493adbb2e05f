"""A standalone Spark cluster on hosts of their own: the master on one, and each worker on another."""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import pyspark
from daemons import Daemon, Worker

from faults import PYTHONPATH
from faults.hosts.network import Network
from spark_kafka_group.testing import wait_until
from spark_kafka_group.testing.node import session

PORT, PAGES = 7077, 8080
UP_WITHIN_S = 90
WITHOUT_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class InPlace:
    """The tests' own Spark and this source tree, as all hosts have them."""

    def __init__(self, directory: Path) -> None:
        self.spark_home = directory
        directory.mkdir(parents=True)
        for part in Path(pyspark.__file__).parent.iterdir():  # workers make a folder in here
            (directory / part.name).symlink_to(part)

    def environment(self, **more: str) -> dict[str, str]:
        """Variables of a process."""
        archive = Path(sys.executable).parents[1] / "spark.jsa"
        archived = f" -XX:SharedArchiveFile={archive} -Xlog:disable" if archive.exists() else ""
        own = {
            "SPARK_HOME": str(self.spark_home),
            "PYTHONPATH": PYTHONPATH,
            "JAVA_TOOL_OPTIONS": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC{archived}",
            "SPARK_DAEMON_MEMORY": "256m",
        }
        return os.environ | own | more


class SparkHosts:
    """A master, and workers that have an executor each; a context manager.

    The master keeps its state in a folder, so that one that is started again knows the application.

    Attributes
    ----------
    url
        For the driver.
    workers
        By the names of their hosts.
    """

    def __init__(self, network: Network, directory: Path, master: str, workers: Sequence[str]) -> None:
        self._network, self._directory, self._host = network, directory, master
        self._hosts = tuple(workers)
        self.url = f"spark://{network.addresses[master]}:{PORT}"
        self.workers: dict[str, Worker] = {}
        self._master: Daemon | None = None

    def __enter__(self) -> SparkHosts:
        self._installed = InPlace(self._directory / "spark")
        try:
            self.start_master()
            for host in self._hosts:
                self.workers[host] = self._start_worker(host)
            self.wait_for_workers()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers.values():
            for pid in self.processes(worker):
                _sent(pid, signal.SIGKILL)
            worker.stop(signal.SIGKILL)
        if self._master is not None:
            self._master.stop(signal.SIGKILL)

    def start_master(self) -> None:
        """Start the master, and wait until it answers."""
        state = f"-Dspark.deploy.recoveryDirectory={self._directory / 'recovery'}"
        self._master = Daemon(
            self._installed, self._directory / "master", "spark-class", "org.apache.spark.deploy.master.Master",
            "--host", self._network.addresses[self._host], "--port", PORT, "--webui-port", PAGES,
            within=self._network.within(self._host), SPARK_LOCAL_IP=self._network.addresses[self._host],
            SPARK_DAEMON_JAVA_OPTS=f"-Dspark.deploy.recoveryMode=FILESYSTEM {state}",
        )  # fmt: skip
        self._master.wait_for(lambda: self.state() is not None)

    def kill_master(self) -> None:
        """kill -9."""
        assert self._master is not None
        self._master.stop(signal.SIGKILL)

    def wait_for_workers(self) -> None:
        """Wait until the master knows of all workers."""
        wait_until(lambda: (self.state() or {}).get("aliveworkers") == len(self.workers), within=UP_WITHIN_S)

    def state(self) -> dict[str, int] | None:
        """What the master says of the cluster; None when it does not answer."""
        page = f"http://{self._network.addresses[self._host]}:{PAGES}/json/"
        try:
            with WITHOUT_PROXY.open(page, timeout=5) as answer:
                return json.load(answer)
        except (OSError, ValueError):  # the page is there, as HTML, a moment before its JSON is
            return None

    def processes(self, worker: Worker) -> list[int]:
        """The worker's executors and their Python, without the worker itself."""
        return [pid for pid in session(worker.process.pid) if pid != worker.process.pid]

    def left(self, within: float) -> list[str]:
        """Processes of executors that are still there when no query is any more."""
        try:
            wait_until(lambda: not any(self.processes(worker) for worker in self.workers.values()), within=within)
        except TimeoutError:
            return [f"processes on {host}: {self.processes(worker)}" for host, worker in self.workers.items()]
        return []

    def _start_worker(self, host: str) -> Worker:
        directory = self._directory / host
        return Worker(
            self._installed, directory, "spark-class", "org.apache.spark.deploy.worker.Worker",
            "--host", self._network.addresses[host], "--webui-port", PAGES, "--cores", 2, "--memory", "2g",
            "--work-dir", directory, self.url, within=self._network.within(host),
            SPARK_LOCAL_IP=self._network.addresses[host],
        )  # fmt: skip


def _sent(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
