"""Helpers of the benchmarks: a broker with records, one Spark, rounds in turns, and a report of the results."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyspark
from pyspark.sql import DataFrame, SparkSession

from spark_kafka_group import GroupKafkaDataSource
from spark_kafka_group.testing import KafkaCluster
from spark_kafka_group.testing.download import VERSION as KAFKA_VERSION
from spark_kafka_group.testing.download import java
from spark_kafka_group.testing.node import wait_until

T = TypeVar("T")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
RESULTS = Path(__file__).parent / "results"
TRIGGERS_WITHIN_S = 300.0
PEER = "org.apache.spark:spark-sql-kafka-0-10_2.13"


def parser(doc: str) -> argparse.ArgumentParser:
    """Options that all benchmarks have."""
    arguments = argparse.ArgumentParser(description=doc.splitlines()[0])
    arguments.add_argument("--jars", type=Path, help=f"folder of jars of Spark's kafka source; else --packages {PEER}")
    arguments.add_argument("--rounds", type=int, default=5, help="measured rounds, after one to warm up")
    return arguments


def session(jars: Path | None, **conf: str) -> SparkSession:
    """One Spark for both sides, with groupkafka registered."""
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.streaming.numRecentProgressUpdates", "100000")
    )
    if jars is not None:
        builder = builder.config("spark.jars", ",".join(str(jar) for jar in sorted(jars.glob("*.jar"))))
    else:
        builder = builder.config("spark.jars.packages", f"{PEER}:{pyspark.__version__}")
    for name, value in conf.items():
        builder = builder.config(name, value)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(GroupKafkaDataSource)
    return spark


def fill(cluster: KafkaCluster, topic: str, partitions: int, records: int, size: int, codec: str = "none") -> None:
    """Produce `records` values of `size` random bytes with Kafka's own performance tool, which is quick."""
    cluster.create_topic(topic, partitions=partitions, configs={"max.message.bytes": str(16 << 20)})
    cluster.run_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        "--topic", topic, "--num-records", str(records), "--record-size", str(size), "--throughput", "-1",
        "--producer-props", f"bootstrap.servers={cluster.bootstrap_servers}", f"compression.type={codec}",
        "linger.ms=20", f"max.request.size={16 << 20}",
    )  # fmt: skip


def noop(df: DataFrame) -> None:
    """Read everything and throw it away, inside the JVM."""
    df.write.format("noop").mode("overwrite").save()


def seconds(run: Callable[[], Any]) -> float:
    """Wall-clock time of a call."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def in_turns(sides: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Results of the sides in turns, after one round to warm up."""
    results: dict[str, list[T]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, run in sides.items():
            result = run()
            if number:
                results[name].append(result)
    return results


def alternate(sides: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of the sides in turns, after one round to warm up."""
    return in_turns({name: partial(seconds, run) for name, run in sides.items()}, rounds)


def cpu_seconds(pid: int) -> tuple[float, float]:
    """Processor time of a process, and of all under it, also of those that have ended.

    An ended process counts for its parent, and for itself until its parent has waited for it.
    """
    times: dict[int, tuple[float, float]] = {}  # a process's own, and that of children that it has waited for
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                user, system, *ended = (int(ticks) / TICKS_PER_S for ticks in fields[11:15])
                times[int(entry.name)] = user + system, sum(ended)
                children.setdefault(int(fields[1]), []).append(int(entry.name))

    def whole(pid: int) -> float:
        return sum(times.get(pid, ())) + sum(map(whole, children.get(pid, ())))

    own, _ = times[pid]
    return own, whole(pid) - own


def trigger_ms(df: DataFrame, sink: str, batches: int, options: Mapping[str, str]) -> list[float]:
    """Milliseconds of each trigger of a query that writes a stream, until there were so many with rows."""
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = df.writeStream.format(sink).options(**options).option("checkpointLocation", checkpoint)
        query = writer.start()
        wait_until(lambda: len(query.recentProgress) >= batches or not query.isActive, within=TRIGGERS_WITHIN_S)
        query.stop()
        return [progress["durationMs"]["triggerExecution"] for progress in query.recentProgress]


def percentiles(values: list[float]) -> tuple[float, float]:
    """Median and 99th percentile."""
    cut = statistics.quantiles(values, n=100, method="inclusive")
    return cut[49], cut[98]


@dataclass(frozen=True)
class Goal:
    """The goal of a cell."""

    cell: str
    at_least: float | None = None
    at_most: float | None = None

    def met(self, cells: Mapping[str, Any]) -> bool:
        """Whether it is."""
        value = cells[self.cell]
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)

    def __str__(self) -> str:
        bound = f"≥ {self.at_least:g}" if self.at_most is None else f"≤ {self.at_most:g}"
        return f"{self.cell} {bound}"


class Report:
    """The results of one benchmark: each row is printed as it comes, all are written as JSON for RESULTS.md.

    Parameters
    ----------
    name
        Of the program, and so of the JSON file.
    question
        What it answers, in a line.
    """

    def __init__(self, name: str, question: str) -> None:
        self._name = name
        self._content: dict[str, Any] = {"question": question, "machine": machine(), "rows": [], "curves": []}
        self._columns: list[str] = []
        print(question, flush=True)

    def row(self, case: str, cells: Mapping[str, float | str], goal: Goal | None = None, **measured: Any) -> None:
        """Add a row; `measured` is what its cells were made of."""
        row: dict[str, Any] = {"case": case, "cells": dict(cells)}
        told = ""
        if goal is not None:
            row |= {"goal": str(goal), "met": goal.met(cells)}
            told = f"{'met' if row['met'] else 'NOT MET'}: {goal}"
        self._content["rows"].append(row | {"measured": measured})
        if list(cells) != self._columns:
            self._columns = list(cells)
            print(f"\n{'':<34}" + "".join(f"{name:>{_width(name)}}" for name in cells))
        print(f"{case:<34}" + "".join(f"{shown(v):>{_width(name)}}" for name, v in cells.items()), told, flush=True)
        self._save()

    def curve(self, title: str, x: str, y: str, series: Mapping[str, list[tuple[float, float]]]) -> None:
        """Add a picture: lines over `x`, on a logarithmic scale."""
        self._content["curves"].append({"title": title, "x": x, "y": y, "series": dict(series)})
        self._save()

    def compare(
        self,
        case: str,
        sides: Mapping[str, Callable[[], Any]],
        rounds: int,
        *,
        goal: float | None = None,
        per: tuple[str, float] | None = None,
    ) -> dict[str, float]:
        """Time `sides` in turns; a row of their medians, and how many times as long the first takes as the last.

        Parameters
        ----------
        goal
            Least ratio wanted.
        per
            A unit and how many of it a round handles: cells are then millions of it per second, not seconds.

        Returns
        -------
        dict
            Median seconds of each side.
        """
        times = alternate(sides, rounds)
        medians = {name: statistics.median(values) for name, values in times.items()}
        if per is None:
            cells = {f"{name} s": value for name, value in medians.items()}
        else:
            cells = {f"{name} M {per[0]}/s": per[1] / value / 1e6 for name, value in medians.items()}
        first, last = next(iter(sides)), list(sides)[-1]
        cells["ratio"] = medians[first] / medians[last]
        self.row(case, cells, None if goal is None else Goal("ratio", at_least=goal), seconds=times)
        return medians

    def _save(self) -> None:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{self._name}.json").write_text(json.dumps(self._content, indent=1) + "\n")


def shown(value: float | str) -> str:
    """A cell's text: three digits that count."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def _width(name: str) -> int:
    return max(12, len(name) + 2)


def machine() -> dict[str, Any]:
    """The machine of the measurement."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    told = subprocess.run([java(), "-version"], capture_output=True, text=True, check=False).stderr
    model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "processor": model[0].partition(": ")[2] if model else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "java": "".join(re.findall(r'version "(\S+)"', told)),
        "python": platform.python_version(),
        "pyspark": pyspark.__version__,
        "kafka": KAFKA_VERSION,
        "kafka_python": _version("kafka-python"),
        "pyarrow": _version("pyarrow"),
        "confluent_kafka": _version("confluent-kafka"),
        "aiokafka": _version("aiokafka"),
        "commit": commit.stdout.strip(),
    }


def _version(package: str) -> str | None:
    """None where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
