"""A Spark cluster in the program's JVM, whose workers are at addresses of their own: to Spark these are hosts.

Spark runs a copy of a slow task on another host only, and all workers of ``local-cluster`` are on one.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext

WORKERS, CORES, MEMORY_MB = 2, 2, 640


def begin(settings: Mapping[str, str], directory: str) -> str:
    """Start a JVM with these settings, and in it a master and its workers. Returns the master's address."""
    conf = SparkConf().setAll(list(settings.items()))
    SparkContext._ensure_initialized(conf=conf)
    gateway, jvm = SparkContext._gateway, SparkContext._jvm
    assert gateway is not None
    assert jvm is not None
    java_conf = jvm.org.apache.spark.SparkConf(False)
    for name, value in (dict(settings) | {"spark.master.rest.enabled": "false"}).items():
        java_conf.set(name, value)
    deploy, option = jvm.org.apache.spark.deploy, jvm.scala.Option
    master: str = deploy.master.Master.startRpcEnvAndEndpoint("127.0.0.1", 0, 0, java_conf)._1().address().toSparkURL()
    masters = gateway.new_array(jvm.java.lang.String, 1)
    masters[0] = master
    for number in range(1, WORKERS + 1):
        deploy.worker.Worker.startRpcEnvAndEndpoint(
            f"127.0.0.{number}", 0, 0, CORES, MEMORY_MB, masters, directory, option.apply(number), java_conf,
            option.empty(),
        )  # fmt: skip
    return master


def logged(folder: Path) -> dict[str, str]:
    """Settings with which Spark writes down each task, in a folder that is made."""
    folder.mkdir()
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }


def attempts(folder: Path) -> Counter[str]:
    """How many tasks were copies of slow ones, were tried again, or were denied their commit."""
    counted: Counter[str] = Counter()
    for info, reason in _ends(folder) if folder.exists() else ():
        if info["Speculative"]:
            counted["copies"] += 1
            counted["copies that were first"] += reason == "Success"
        elif info["Attempt"]:
            counted["tried again"] += 1
        counted["commits denied"] += reason == "TaskCommitDenied"
    return counted


def _ends(folder: Path) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Of each task that has ended: what it was, and how it ended."""
    for log in folder.iterdir():
        for line in log.read_text(errors="replace").splitlines():
            if line.startswith('{"Event":"SparkListenerTaskEnd"'):
                with contextlib.suppress(json.JSONDecodeError):  # the last line of a program that was killed
                    event = json.loads(line)
                    yield event["Task Info"], event["Task End Reason"]["Reason"]
