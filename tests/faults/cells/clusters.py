"""Faults of what runs tasks: Python workers, and a standalone cluster with master, driver and workers on hosts."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import cast

from faults.cells.network import Hosts, on_hosts
from faults.cells.registry import EXECUTOR, Cell, add, cell
from faults.evidence import GROUPKAFKA
from faults.hosts.spark_hosts import SparkHosts
from faults.processes import command
from faults.scene import Scene

MASTER, DRIVER, SPARE = "master", "driver", "spare"
WORKERS = ("worker1", "worker2")
ON_HOSTS = functools.partial(on_hosts, MASTER, DRIVER, SPARE, *WORKERS)
LEFT_WITHIN_S = 30.0
SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
}
"""An executor on each of two workers."""
TASKS = {"minPartitions": "2"}
"""So both executors have a task of each batch."""
SOON_LOST = {
    "spark.network.timeout": "10s",
    "spark.network.timeoutInterval": "2s",
    "spark.executor.heartbeatInterval": "2s",
}
"""Spark takes an executor for lost that is silent for so long, in place of two minutes."""
EMPTY: Mapping[str, str] = MappingProxyType({})


# Python workers, wherever they are


@cell(EXECUTOR, "SIGKILL of all Python workers, at a random moment", sources=(GROUPKAFKA,))
def worker_kill(scene: Scene) -> None:
    scene.pause(2)
    with scene.fault("SIGKILL of the Python workers"):
        kill_all(scene)


def kill_all(scene: Scene) -> None:
    """SIGKILL of all Python workers that there are."""
    for pid in scene.query.workers():
        os.kill(pid, signal.SIGKILL)


@cell(EXECUTOR, "SIGSTOP of all Python workers for 5 s, at a random moment", sources=(GROUPKAFKA,), session_s=3.0)
def worker_pause(scene: Scene) -> None:
    scene.pause(2)
    stopped = scene.query.workers()
    with scene.fault("SIGSTOP of the Python workers for 5 s"):
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(5)  # the fault itself
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)


# A cluster


def on_a_cluster(scene: Scene, settings: Mapping[str, str] = EMPTY) -> None:
    """The query's driver is on a host, its executors are on those of two workers."""
    network = cast(Hosts, scene.kafka).network
    spark = SparkHosts(network, scene.directory / "spark", MASTER, WORKERS)
    scene.room["spark"] = scene.closing.enter_context(spark)
    scene.at_end.append(lambda: spark.left(LEFT_WITHIN_S))
    given = [f"--conf={name}={value}" for name, value in {**SETTINGS, **settings}.items()]
    scene.arguments += ["--master", spark.url, *given]
    driver_on(scene, DRIVER)


def driver_on(scene: Scene, host: str) -> None:
    """From now on processes of the query start on this host."""
    network = cast(Hosts, scene.kafka).network
    scene.prefix[:] = network.within(host)
    scene.environment["SPARK_LOCAL_IP"] = network.addresses[host]


def cluster_cell(name: str, what: str, happen: Callable[[Scene], None], settings: Mapping[str, str] = EMPTY) -> None:
    prepare = functools.partial(on_a_cluster, settings=settings) if settings else on_a_cluster
    add(Cell(EXECUTOR, name, what, happen, nodes=3, options=TASKS, brokers=ON_HOSTS, prepare=prepare))


def spark_of(scene: Scene) -> SparkHosts:
    return cast(SparkHosts, scene.room["spark"])


def an_executor(scene: Scene) -> list[int]:
    """The processes of an executor that runs: first its JVM, then its Python.

    An executor of an application that was replaced a moment ago may still be there, and is older.
    """
    spark = spark_of(scene)
    worker = spark.workers[scene.rng.choice(WORKERS)]
    found: list[int] = []

    def started() -> bool:
        pids = spark.processes(worker)
        jvms = sorted((pid for pid in pids if b"CoarseGrainedExecutorBackend" in command(pid)), reverse=True)
        found[:] = jvms + [pid for pid in pids if pid not in jvms]
        return bool(jvms)

    scene.wait(started)
    return found


def signalled(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def executor_killed(scene: Scene) -> None:
    scene.pause(2)
    jvm = an_executor(scene)[0]
    with scene.fault("SIGKILL of an executor's JVM"):
        os.kill(jvm, signal.SIGKILL)


def executor_paused(scene: Scene) -> None:
    scene.pause(2)
    pids = an_executor(scene)
    with scene.fault("SIGSTOP of an executor for 15 s"):
        signalled(pids, signal.SIGSTOP)
        time.sleep(15)  # the fault itself: longer than the session
        signalled(pids, signal.SIGCONT)


def worker_cut_off(scene: Scene) -> None:
    network = cast(Hosts, scene.kafka).network
    scene.pause(2)
    host = scene.rng.choice(WORKERS)
    with scene.fault("the host of a worker cut off for 20 s"):
        network.cut(host)
        try:
            time.sleep(20)  # the fault itself
        finally:
            network.mend(host)


def master_killed(scene: Scene) -> None:
    spark = spark_of(scene)
    scene.pause(2)
    with scene.fault("SIGKILL of the master for 5 s"):
        spark.kill_master()
        time.sleep(5)  # the fault itself
        spark.start_master()
        spark.wait_for_workers()


cluster_cell("executor-kill", "SIGKILL of an executor's JVM, at a random moment", executor_killed)
cluster_cell(
    "executor-pause", "SIGSTOP of an executor, its JVM and its Python, for 15 s, beyond the session", executor_paused
)
cluster_cell(
    "executor-pause-lost",
    "the same, where Spark takes an executor for lost after 10 s: its tasks run elsewhere, before it goes on",
    executor_paused,
    SOON_LOST,
)
cluster_cell("worker-cut-off", "the link of a worker's host is down, without a word, for 20 s", worker_cut_off)
cluster_cell(
    "worker-cut-off-lost",
    "the same, where Spark takes an executor for lost after 10 s: its tasks run elsewhere, before it goes on",
    worker_cut_off,
    SOON_LOST,
)
cluster_cell(
    "master-kill", "SIGKILL of the master, which comes back after 5 s and knows the application", master_killed
)
