"""How long until the first rows: the first batch of a query, in a new session and in a warm one; imports of a worker.

python benchmarks/start.py --jars folder-of-jars      # or without --jars where --packages can download
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import Goal, Report, parser, seconds, session
from kafka import KafkaConsumer
from pyspark.sql import SparkSession

from spark_kafka_group.testing import KafkaCluster

MOST_IMPORT_MS = 150.0
IMPORTS = """
import time
import pyarrow, pyspark.worker, pyspark.sql.worker.plan_data_source_read  # what a worker has anyway
began = time.perf_counter()
from spark_kafka_group import source
unpickled = time.perf_counter()
options = source.Options.parse({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"})
assert list(source._read(source.ReadTask(()), options)) == []
print((unpickled - began) * 1e3, (time.perf_counter() - unpickled) * 1e3)
"""
ALONE = "import time; began = time.perf_counter(); import {}; print((time.perf_counter() - began) * 1e3)"
_numbers = itertools.count()


def batch(spark: SparkSession, source: str, servers: str) -> float:
    """Seconds from load() to the count of a topic with one record."""

    def count() -> None:
        options = {"kafka.bootstrap.servers": servers, "subscribe": "one", "startingOffsets": "earliest"}
        rows = spark.read.format(source).options(**options).load().count()
        assert rows == 1, rows

    return seconds(count)


def stream(spark: SparkSession, source: str, servers: str) -> float:
    """Seconds from start() until the first micro-batch, of one record, is done."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": "one", "startingOffsets": "earliest"}
    if source == "groupkafka":
        options["kafka.group.id"] = f"start-{next(_numbers)}"
    rows: list[int] = []
    with tempfile.TemporaryDirectory() as directory:
        df = spark.readStream.format(source).options(**options).load()
        writer = df.writeStream.option("checkpointLocation", directory).foreachBatch(
            lambda df, _: rows.append(df.count())
        )
        queries: list[Any] = []

        def first_batch() -> None:
            queries.append(writer.start())
            queries[0].processAllAvailable()

        try:
            taken = seconds(first_batch)
        finally:
            for query in queries:
                query.stop()
    assert rows == [1], rows
    return taken


KINDS: dict[str, Callable[[SparkSession, str, str], float]] = {"batch": batch, "stream": stream}


def cold(jars: Path | None, kind: str, source: str, servers: str) -> float:
    """The same in a process and a Spark session of its own, which has counted a range before; its start is left out."""
    told = json.dumps({"jars": str(jars) if jars else None, "kind": kind, "source": source, "servers": servers})
    run = subprocess.run([sys.executable, __file__, "--alone", told], capture_output=True, text=True, check=True)
    return float(run.stdout.split()[-1])


def alone(jars: str | None, kind: str, source: str, servers: str) -> float:
    """The program that :func:`cold` starts."""
    spark = session(Path(jars) if jars else None)
    spark.range(1).count()
    taken = KINDS[kind](spark, source, servers)
    spark.stop()
    return taken


def imports(rounds: int) -> tuple[list[float], list[float]]:
    """Milliseconds of unpickling a reader, and of the first read, in fresh interpreters with a worker's imports."""
    told = [
        subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(rounds + 1)
    ]
    return [float(unpickled) for unpickled, _ in told[1:]], [float(read) for _, read in told[1:]]


def imported_alone(module: str, rounds: int) -> float:
    """Median milliseconds of importing a module in a fresh interpreter."""
    command = [sys.executable, "-c", ALONE.format(module)]
    return statistics.median(
        float(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(rounds)
    )


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--interpreters", type=int, default=15, help="fresh ones, for imports")
    arguments.add_argument("--sessions", type=int, default=3, help="fresh ones of each source, for cold starts")
    arguments.add_argument("--alone", type=json.loads, help=argparse.SUPPRESS)
    args = arguments.parse_args()
    if args.alone:
        print(alone(**args.alone))
        return
    report = Report("start", "How long until the first rows (one record, 2 cores)?")
    unpickled, read = imports(args.interpreters)
    total = [sum(pair) for pair in zip(unpickled, read, strict=True)]
    cells = {"unpickle ms": statistics.median(unpickled), "read ms": statistics.median(read)}
    cells |= {"total ms": statistics.median(total)}
    report.row("imports of a reading worker", cells, Goal("total ms", at_most=MOST_IMPORT_MS), total=total)
    others = {
        f"{module} ms": imported_alone(module, args.interpreters) for module in ("numpy", "pyarrow", "pandas", "kafka")
    }
    report.row("imports of others, alone", others)
    with KafkaCluster() as cluster:
        cluster.create_topic("one")
        cluster.produce("one", [b"v"])
        servers = cluster.bootstrap_servers
        first = KafkaConsumer("one", bootstrap_servers=servers, group_id="first", auto_offset_reset="earliest")
        first.poll(10_000)
        first.close()  # commits: a cluster's first group waits until __consumer_offsets is made
        for kind in KINDS:
            taken: dict[str, list[float]] = {"kafka": [], "groupkafka": []}
            for _ in range(args.sessions):
                for source, times in taken.items():
                    times.append(cold(args.jars, kind, source, servers))
            medians = {source: statistics.median(times) for source, times in taken.items()}
            cells = {f"{source} s": value for source, value in medians.items()}
            report.row(f"{kind}, cold", cells | {"ratio": medians["kafka"] / medians["groupkafka"]}, seconds=taken)
        spark = session(args.jars)
        for kind, run in KINDS.items():
            times_of: dict[str, list[float]] = {"kafka": [], "groupkafka": []}
            for number in range(2 * args.rounds + 1):
                for source, times in times_of.items():
                    took = run(spark, source, servers)
                    if number:
                        times.append(took)
            medians = {source: statistics.median(times) for source, times in times_of.items()}
            cells = {f"{source} s": value for source, value in medians.items()}
            report.row(f"{kind}, warm", cells | {"ratio": medians["kafka"] / medians["groupkafka"]}, seconds=times_of)
        spark.stop()


if __name__ == "__main__":
    main()
