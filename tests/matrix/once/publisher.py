"""The program: several queries in one Spark application, each of which writes to a topic.

How a query ends by itself is noted, and it is started again once the folder of its marks says so.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from matrix.once import shapes
from matrix.once.shapes import GROUP_SQL, PLACE_SQL, SHARED_SQL
from matrix.once.stepping import MARKS, SteppedDataSource

SLOW, FAILING, SLOW_S = 0.04, 0.02, 4.0
"""Of the first attempts of tasks: how many are slow, or fail behind their last row; and how slow."""
RESTART = "restart"

stopping = threading.Event()
starting = threading.Lock()
"""One query starts at a time: Spark may not find a Python data source that it looks up in two threads at once."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True, help="of this process, for its files")
    parser.add_argument("--queries", type=json.loads, required=True)
    parser.add_argument("--sink", default="groupkafka")
    parser.add_argument("--trigger", default="500 milliseconds")
    parser.add_argument("--master", default="local[8,4]")
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark")
    parser.add_argument("--jars", default="")
    parser.add_argument("--unsteady", type=int, help="a seed: some tasks are slow, or fail, once")
    parser.add_argument("--tmp", required=True, help="for temporary files")
    return parser.parse_args()


def session(args: argparse.Namespace) -> SparkSession:
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "900m",
        "spark.local.dir": args.tmp,
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20",  # so that a task has rows that are sent, and others
        "spark.sql.streaming.minBatchesToRetain": "1000000",  # what ran in which batch is read from the checkpoint
        "spark.sql.shuffle.partitions": "2",
        "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    }
    settings |= dict(setting.split("=", 1) for setting in args.conf)
    builder = SparkSession.builder.master(args.master).appName("publisher")
    for name, value in (settings | ({"spark.jars": args.jars} if args.jars else {})).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(SteppedDataSource)
    return spark


def frame(spark: SparkSession, query: dict[str, Any]) -> DataFrame:
    """Key and value of the rows that a query writes."""

    def read(topic: str) -> DataFrame:
        return spark.readStream.format(query["format"]).options(**query["source"], subscribe=topic).load()

    first, *others = query["topics"]
    match query["shape"]:
        case shapes.AGGREGATE:
            return read(first).selectExpr(f"{GROUP_SQL} key").groupBy("key").count().selectExpr(
                "key", "cast(count as string) value"
            )  # fmt: skip
        case shapes.JOIN:
            one, other = (read(topic).selectExpr(f"{SHARED_SQL} key") for topic in (first, *others))
            return one.join(other, "key").selectExpr("key", "key value")
    return read(first).selectExpr(f"{PLACE_SQL} key", "cast(value as string) value")


def unsteady(seed: int) -> Any:
    """A function for mapInArrow, in which some first attempts are slow, or fail, and which changes nothing."""

    def through(batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        drawn = random.Random(f"{seed} {context.taskAttemptId()}").random() if context.attemptNumber() == 0 else 1.0
        for number, batch in enumerate(batches):
            if drawn < SLOW and number == 0:
                time.sleep(SLOW_S)  # the fault itself
            yield batch
        if SLOW <= drawn < SLOW + FAILING:
            raise RuntimeError("a task fails once")

    return through


def start(spark: SparkSession, query: dict[str, Any], args: argparse.Namespace, options: dict[str, str]) -> Any:
    """A query that runs."""
    rows = frame(spark, query)
    if args.unsteady is not None:
        rows = rows.mapInArrow(unsteady(args.unsteady), rows.schema)
    writer = rows.writeStream.format(args.sink).options(**options).queryName(query["name"])
    writer = writer.outputMode("update" if query["shape"] == shapes.AGGREGATE else "append")
    writer = writer.option("checkpointLocation", str(Path(query["directory"]) / "checkpoint"))
    return writer.trigger(processingTime=args.trigger).start()


def run(spark: SparkSession, query: dict[str, Any], args: argparse.Namespace) -> None:
    """A query, again and again until the program is to end."""
    directory = Path(query["directory"])
    marks = directory / MARKS / args.name
    marks.mkdir(parents=True)
    options = query["sink"] | ({MARKS: str(marks)} if args.sink == "groupkafka" else {})
    while not stopping.is_set():
        try:
            with starting:
                started = start(spark, query, args, options)
            (marks / "started").touch()
            started.awaitTermination()
            return
        except (StreamingQueryException, AnalysisException) as error:
            note(directory, args.name, str(error))
        except BaseException as error:  # noqa: BLE001 - the JVM is gone
            note(directory, args.name, f"no Spark: {type(error).__name__}: {error}")
            os._exit(3)
        while not (marks / RESTART).exists() and not stopping.wait(0.05):
            pass
        (marks / RESTART).unlink(missing_ok=True)


def note(directory: Path, process: str, error: str) -> None:
    """Keep how a query ended."""
    if not stopping.is_set():
        line = {"process": process, "ms": time.time() * 1000, "error": error[:6000]}
        with (directory / "endings.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")


def main() -> None:
    args = arguments()
    spark = session(args)
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    threads = [threading.Thread(target=run, args=(spark, query, args), daemon=True) for query in args.queries]
    for thread in threads:
        thread.start()
    while not stopping.wait(0.2):
        pass
    for query in spark.streams.active:
        query.stop()
    for thread in threads:
        thread.join(30)
    spark.stop()


if __name__ == "__main__":
    main()
