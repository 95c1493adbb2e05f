"""What the benchmarks share: a broker with records in it, one Spark, medians and a JSON of the results."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession

from spark_kafka_group.testing import KafkaCluster

RESULTS = Path(__file__).parent / "results"
PEER = "org.apache.spark:spark-sql-kafka-0-10_2.13"


def parser(doc: str) -> argparse.ArgumentParser:
    """Options that all benchmarks have."""
    arguments = argparse.ArgumentParser(description=doc.splitlines()[0])
    arguments.add_argument("--jars", type=Path, help=f"folder of jars of Spark's kafka source; else --packages {PEER}")
    arguments.add_argument("--rounds", type=int, default=5, help="measured rounds after one to warm up")
    return arguments


def session(jars: Path | None, **conf: str) -> SparkSession:
    """One Spark for both sides."""
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.python.unix.domain.socket.enabled", "true")
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
    return spark


def fill(cluster: KafkaCluster, topic: str, partitions: int, records: int, size: int, codec: str) -> None:
    """Produce `records` values of `size` random bytes with Kafka's own performance tool, which is quick."""
    cluster.create_topic(topic, partitions=partitions)
    cluster.run_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        "--topic", topic, "--num-records", str(records), "--record-size", str(size), "--throughput", "-1",
        "--producer-props", f"bootstrap.servers={cluster.bootstrap_servers}", f"compression.type={codec}",
        "linger.ms=20",
    )  # fmt: skip


def noop(df: DataFrame) -> None:
    """Read everything and throw it away, inside the JVM."""
    df.write.format("noop").mode("overwrite").save()


def seconds(run: Callable[[], Any]) -> float:
    """Wall-clock time of a call."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def alternate(sides: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Time the sides in turns, after one round to warm up."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, run in sides.items():
            taken = seconds(run)
            if number:
                times[name].append(taken)
    return times


def report(name: str, results: dict[str, Any]) -> None:
    """Write the JSON of a benchmark's results, with what it ran on."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    machine = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "pyspark": pyspark.__version__,
        "commit": commit.stdout.strip(),
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps({"machine": machine, "results": results}, indent=1) + "\n")


def median(values: list[float]) -> float:
    """Middle value."""
    return statistics.median(values)
