"""YARN: a resource manager and node managers, of Hadoop's jar for small clusters, on the Hadoop that Spark ships."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from daemons import Daemon
from deployed import SETTINGS
from installation import Installation

from spark_kafka_group.spark.installation import java
from spark_kafka_group.testing.download import cache_directory, once, retrieve
from spark_kafka_group.testing.node import children, free_ports

MODULE = "hadoop-client-minicluster"
SECURITY = ("org.bouncycastle", "bcpkix-jdk18on", "1.78.1")
"""What the resource manager asks for, too."""
SERVER = "org.apache.hadoop.yarn.server"


def servers() -> str:
    """The classpath of YARN's servers, in the version of the installed pyspark, downloaded if it is not there yet."""
    import pyspark

    (client,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    hadoop = client.stem.removeprefix("hadoop-client-api-")

    def retrieve_all(parts: Path) -> None:
        retrieve("org.apache.hadoop", MODULE, hadoop, parts, "-notransitive")
        retrieve(*SECURITY, parts)

    doing = f"downloading YARN of Hadoop {hadoop} (70 MB), once"
    return f"{once(cache_directory() / f'hadoop-{hadoop}' / MODULE, retrieve_all, doing)}/*"


def site(settings: Mapping[str, object]) -> str:
    """A file of Hadoop's settings."""
    lines = [f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items()]
    return "<configuration>\n" + "\n".join(lines) + "\n</configuration>\n"


class Yarn:
    """A resource manager and two nodes, each a process; a node's containers are its child processes.

    Attributes
    ----------
    variables, settings
        Environment of spark-submit, and Spark's settings: an executor on each node.
    """

    def __init__(self, installed: Installation, directory: Path, nodes: int = 2) -> None:
        self._installed, self._directory = installed, directory
        ports = free_ports(5)
        names = ("address", "scheduler.address", "resource-tracker.address", "admin.address", "webapp.address")
        self._page = f"http://127.0.0.1:{ports[-1]}/ws/v1/cluster"
        self._common: dict[str, object] = {
            **{f"yarn.resourcemanager.{name}": f"127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)},
            "yarn.resourcemanager.scheduler.class": f"{SERVER}.resourcemanager.scheduler.fifo.FifoScheduler",
            "yarn.resourcemanager.nm.liveness-monitor.expiry-interval-ms": 10_000,
            "yarn.resourcemanager.am.max-attempts": 2,
            "yarn.scheduler.minimum-allocation-mb": 128,
            "yarn.nodemanager.resource.memory-mb": 4096,
            "yarn.nodemanager.resource.cpu-vcores": 4,
            "yarn.nodemanager.pmem-check-enabled": "false",
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.delete.debug-delay-sec": 3600,
            "yarn.nodemanager.disk-health-checker.enable": "false",
            "yarn.dispatcher.exit-on-error": "true",
        }
        self._clients = self._configured("client", {})
        self.variables = {"HADOOP_CONF_DIR": str(self._clients), "YARN_CONF_DIR": str(self._clients)}
        self.settings = SETTINGS | {
            "spark.yarn.jars": f"local:{installed.spark_home}/jars/*",
            "spark.yarn.stagingDir": f"file:{directory}/staging",
            "spark.yarn.am.memory": "512m",
            "spark.python.unix.domain.socket.dir": "/tmp",
            "spark.yarn.maxAppAttempts": "1",
            "spark.driver.memory": "512m",
            "spark.executor.instances": "2",
        }
        self.nodes: list[Daemon] = []
        self._manager = self._started("manager", "resourcemanager.ResourceManager", {})
        try:
            self._manager.wait_for(lambda: self._asked("info") is not None)
            for number in range(nodes):
                self.nodes.append(self._node(f"node{number}"))
            self._manager.wait_for(lambda: self._running() == nodes)
        except BaseException:
            self.stop()
            raise

    def _node(self, name: str) -> Daemon:
        ports = free_ports(3)
        directory = self._directory / name
        own = dict(
            zip(("address", "localizer.address", "webapp.address"), (f"127.0.0.1:{p}" for p in ports), strict=True)
        )
        settings = {f"yarn.nodemanager.{key}": value for key, value in own.items()}
        folders = {"local-dirs": directory / "local", "log-dirs": directory / "logs"}
        settings |= {f"yarn.nodemanager.{key}": str(value) for key, value in folders.items()}
        return self._started(name, "nodemanager.NodeManager", settings)

    def _configured(self, name: str, settings: Mapping[str, object]) -> Path:
        folder = self._directory / name / "conf"
        folder.mkdir(parents=True)
        (folder / "core-site.xml").write_text(site({"hadoop.tmp.dir": self._directory / name / "tmp"}))
        (folder / "yarn-site.xml").write_text(site({**self._common, **settings}))
        return folder

    def _started(self, name: str, main: str, settings: Mapping[str, object]) -> Daemon:
        conf = str(self._configured(name, settings))
        return Daemon(
            self._installed, self._directory / name, "spark-class", f"{SERVER}.{main}",
            HADOOP_CONF_DIR=conf, YARN_CONF_DIR=conf, SPARK_DIST_CLASSPATH=servers(),
            JAVA_HOME=java_home(), SPARK_DRIVER_MEMORY="400m",
        )  # fmt: skip

    def _running(self) -> int:
        metrics = self._asked("metrics")
        return metrics["clusterMetrics"]["activeNodes"] if metrics else 0

    def _asked(self, what: str) -> dict | None:  # type: ignore[type-arg]
        try:
            with urllib.request.urlopen(f"{self._page}/{what}", timeout=5) as answer:
                return json.load(answer)
        except (OSError, ValueError):
            return None

    def kill_application(self, name: str) -> None:
        """Kill the application of this name that runs, as ``yarn application -kill`` does."""
        running = self._asked("apps?states=RUNNING")["apps"]["app"]  # type: ignore[index]
        (application,) = (application for application in running if application["name"] == name)
        body = json.dumps({"state": "KILLED"}).encode()
        request = urllib.request.Request(
            f"{self._page}/apps/{application['id']}/state?user.name={application['user']}", body,
            {"Content-Type": "application/json"}, method="PUT",
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=30):
            pass

    def containers(self, node: Daemon) -> list[int]:
        """Process ids of all that runs in a node's containers."""
        return descendants(node.process.pid)

    def stop(self) -> None:
        """End all."""
        for node in self.nodes:
            for pid in self.containers(node):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for daemon in [*self.nodes, self._manager]:
            daemon.stop(signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """Ids of living children, and theirs."""
    own = children(pid)
    return own + [each for child in own for each in descendants(child)]


def java_home() -> str:
    """Where containers take Java from."""
    return os.environ.get("JAVA_HOME") or str(Path(os.path.realpath(java())).parents[1])
