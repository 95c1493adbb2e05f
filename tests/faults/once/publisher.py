"""The program: several queries in one Spark application, each of which writes to a topic.

How a query ends by itself is noted, and it is started again once the folder of its marks says so.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from faults.once import shapes, two_hosts
from faults.once.shapes import GROUP_SQL, PLACE_SQL, SHARED_SQL
from faults.once.stepping import MARKS, SteppedDataSource
from faults.programs import session as spark_program

SLOW, FAILING, SLOW_S = 0.04, 0.02, 4.0
"""Of the first attempts of tasks: how many are slow, or fail behind their last row; and how slow."""
RESTART = "restart"
SETTINGS = {
    "spark.driver.memory": "900m",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20",  # so that a task has rows that are sent, and others
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
}

stopping = threading.Event()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True, help="of this process, for its files")
    parser.add_argument("--queries", type=json.loads, required=True)
    parser.add_argument("--sink", default="groupkafka")
    parser.add_argument("--trigger", default="2 seconds")
    parser.add_argument("--unsteady", type=int, help="a seed: some tasks are slow, or fail, once")
    parser.add_argument("--two-hosts", action="store_true", help="a cluster of its own, in place of a master")
    spark_program.add_arguments(parser, master="local[8,4]")
    return parser.parse_args()


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
    writer = writer.outputMode("complete" if query["shape"] == shapes.AGGREGATE else "append")
    writer = writer.option("checkpointLocation", str(Path(query["directory"]) / "checkpoint"))
    return writer.trigger(processingTime=args.trigger).start()


class Running:
    """A query, which is started again when it has ended and its marks say so. For the main thread: it has the session.

    Raises
    ------
    Exception
        By all methods, when there is no JVM.
    """

    def __init__(self, spark: SparkSession, query: dict[str, Any], args: argparse.Namespace) -> None:
        self._spark, self._query, self._args = spark, query, args
        self._directory = Path(query["directory"])
        self._marks = self._directory / MARKS / args.name
        self._marks.mkdir(parents=True)
        self._started: Any = None
        self._ended = False

    def start(self) -> None:
        """Start it, or note why that fails."""
        self._ended = False
        options = self._query["sink"] | ({MARKS: str(self._marks)} if self._args.sink == "groupkafka" else {})
        try:
            self._started = start(self._spark, self._query, self._args, options)
            (self._marks / "started").touch()
        except (AnalysisException, Py4JJavaError) as error:  # the latter where Spark's workers were killed
            self._end(str(error))

    def look(self) -> None:
        """Note its end, and start it again when that is wanted."""
        if not self._ended and not self._started.isActive:
            error = self._started.exception()
            self._end("it has stopped" if error is None else str(error))
        if self._ended and (self._marks / RESTART).exists():
            (self._marks / RESTART).unlink()
            self.start()

    def _end(self, error: str) -> None:
        self._ended = True
        note(self._directory, self._args.name, error)


def note(directory: Path, process: str, error: str) -> None:
    """Keep how a query ended."""
    line = {"process": process, "ms": time.time() * 1000, "error": error[:6000]}
    with (directory / "endings.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def main() -> None:
    args = arguments()
    spark = spark_program.session(args, SETTINGS, two_hosts.begin if args.two_hosts else None)
    spark.dataSource.register(SteppedDataSource)
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    running = [Running(spark, query, args) for query in args.queries]
    for query in running:
        query.start()
    while not stopping.wait(0.2):
        for query in running:
            query.look()
    for active in spark.streams.active:
        active.stop()
    spark.stop()


if __name__ == "__main__":
    main()
