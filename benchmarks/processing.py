"""A handler for each record: the models' share of their threads' capacity, and the overhead of a call.

python benchmarks/processing.py

A handler of 10 ms waits, as one does that asks a service, so a thread handles at most 100 records a second. Model 1 has
a task with one thread for each partition; model 3 a pool of threads to which records go one by one; model 4 the sliding
window, without an order and with one of keys.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from common import Goal, Report, fill, parser, seconds, session
from memory import MIB, status
from pyspark.sql import DataFrame, SparkSession

from spark_kafka_group import Record, RecordProcessor
from spark_kafka_group.processing.handler_task import HandOff
from spark_kafka_group.processing.work_queue import WorkQueue
from spark_kafka_group.processing.workers import workers_for
from spark_kafka_group.testing import KafkaCluster

PARTITIONS, CORES = 4, 2
HANDLER_S = 0.010
THREADS = 16


def wait(record: Any) -> None:
    time.sleep(HANDLER_S)


def nothing(record: Any) -> None:
    pass


def measured(run: Callable[[], Any], rounds: int) -> list[float]:
    """Seconds of each round after one to warm up."""
    return [seconds(run) for _ in range(rounds + 1)][1:]


def frame(spark: SparkSession, cluster: KafkaCluster, topic: str, **options: str) -> DataFrame:
    common = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}
    return spark.read.format("groupkafka").options(**common, **options).load()


def in_window(records: int, threads: int) -> dict[str, float]:
    """Memory of a window in this process, which has done nothing else: records of 10 kB, half a ms of work each."""
    most_threads = 0

    def handler(record: Record) -> None:
        nonlocal most_threads
        most_threads = max(most_threads, threading.active_count())
        time.sleep(0.0005)

    def made() -> Iterator[Record]:
        for number in range(records):
            yield Record(b"k", number.to_bytes(8) + bytes(10_000), "t", 0, number, 0, 0)

    settings = RecordProcessor(handler, ordering="unordered", threads=threads)._settings
    before = status("VmRSS")
    queue = WorkQueue(settings, HandOff(settings, 0))
    with workers_for(queue, handler, threads, settings.stall_timeout_ms).running():
        for _ in queue.process(made()):
            pass
    assert queue.counts.done == records
    in_flight = queue.most_in_flight
    return {"peak MiB": (status("VmHWM") - before) / MIB, "in flight": in_flight, "threads": most_threads}


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--scale", type=float, default=1.0, help="times the records of each case")
    arguments.add_argument("--alone", type=json.loads, help=argparse.SUPPRESS)
    args = arguments.parse_args()
    if args.alone:
        print(json.dumps(in_window(**args.alone)))
        return
    spark = session(args.jars, **{} if args.jars else {"spark.jars.packages": ""})  # there is no other side
    report = Report("processing", "How fast are handlers of one record (4 partitions x 100 B, 2 cores)?")
    tasks_of_partitions = {"recordsPerTask": "1", "maxTasks": str(PARTITIONS)}
    models = (
        # name, processor, options of the source, handlers at once, records
        ("1: a task per partition", {"threads": 1}, tasks_of_partitions, CORES, 3_000),
        ("3: a pool", {"ordering": "unordered", "threads": THREADS, "cell_records": 1, "window_cells": 3200},
         {"maxTasks": str(CORES), "recordsPerTask": "1"}, CORES * THREADS, 32_000),
        ("4: the window", {"ordering": "unordered", "threads": THREADS},
         {"maxTasks": str(CORES), "recordsPerTask": "1"}, CORES * THREADS, 32_000),
        ("4: the window, by key", {"ordering": "key", "threads": THREADS},
         {"maxTasks": str(CORES), "recordsPerTask": "1"}, CORES * THREADS, 32_000),
    )  # fmt: skip
    with KafkaCluster() as cluster:
        for name, settings, options, at_once, whole in models:
            records = max(1000, int(whole * args.scale))
            topic = f"waiting-{records}"
            if topic not in cluster.admin.list_topics():
                fill(cluster, topic, PARTITIONS, records, 100)
            df = frame(spark, cluster, topic, **options)
            processor = RecordProcessor(wait, **settings)
            assert processor.run(df).done == records
            times = measured(lambda processor=processor, df=df: processor.run(df), args.rounds)
            rate, limit = records / statistics.median(times), at_once / HANDLER_S
            goal = Goal("share", at_least=0.9) if name == "4: the window" else None
            report.row(name, {"records/s": rate, "limit": limit, "share": rate / limit}, goal, seconds=times)
        records = max(10_000, int(2_000_000 * args.scale))
        fill(cluster, "nothing", PARTITIONS, records, 100)
        df = frame(spark, cluster, "nothing")
        for name, settings in (
            ("does nothing, 1 thread", {"threads": 1}),
            ("does nothing, 16 threads", {"threads": THREADS}),
            ("does nothing, by key", {"threads": THREADS, "ordering": "key"}),
            ("does nothing, unordered", {"threads": THREADS, "ordering": "unordered"}),
        ):
            processor = RecordProcessor(nothing, **settings)
            assert processor.run(df).done == records
            times = measured(lambda processor=processor: processor.run(df), args.rounds)
            per_core = records / statistics.median(times) / CORES
            report.row(
                name,
                {"records/s per core": per_core, "µs a record": 1e6 / per_core},
                Goal("records/s per core", at_least=200_000) if settings == {"threads": THREADS} else None,
                seconds=times,
            )
    spark.stop()
    for records in (10_000, 100_000):
        alone = [sys.executable, __file__, "--alone", json.dumps({"records": records, "threads": THREADS})]
        cells = json.loads(subprocess.run(alone, capture_output=True, text=True, check=True).stdout)
        report.row(f"a window of 3,200 records, {records:,} records of 10 kB", cells)


if __name__ == "__main__":
    main()
