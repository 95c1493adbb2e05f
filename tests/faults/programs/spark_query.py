"""The query of a run, in real Spark: either source, into parquet. It writes down each task's ranges, and its progress.

Points at which it stops dead are those of ``tests/faults/query.py``; here the file ``<marks>/armed`` names one of them.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from faults.judge.evidence import PROCESSOR_ONCE, PROCESSORS, TOPIC, TOPIC_ONCE
from faults.programs import session as spark_program
from faults.programs.handling import DEAD_LETTERS, DELAYS_MS, Handler, HopelessError, ReturningHandler
from faults.programs.kill_query import wait_at
from faults.sink import KEY
from spark_kafka_group import RecordProcessor
from spark_kafka_group.source import GroupKafkaDataSource, GroupKafkaStreamReader
from spark_kafka_group.submit import orderly

SETTINGS = {
    "spark.driver.memory": "700m",
    # Otherwise two things of Spark's look like growth for an hour: the garbage of 30 min between two full collections,
    # and its status store, which keeps the last 1,000 jobs, stages and executions.
    "spark.cleaner.periodicGC.interval": "5min",
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.sql.ui.retainedExecutions": "50",
    "spark.sql.streaming.fileSink.log.deletion": "false",  # what ran in which batch is read from this log, too
    "spark.sql.streaming.noDataProgressEventInterval": "1000",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
}
COLUMNS = ("topic", "partition", "offset", "cast(value as string) value")


def armed(marks: Path, point: str) -> bool:
    """Whether the process is to stop dead at this point, the next time that it gets there."""
    try:
        return (marks / "armed").read_text() == point
    except OSError:
        return False


class LoggingReader(GroupKafkaStreamReader):
    """The reader, with a line for each plan of a batch's tasks, and a stop at the point that is armed."""

    def __init__(self, reader: GroupKafkaStreamReader, marks: Path, tasks: Path) -> None:
        super().__init__(reader._options)
        self.marks, self.tasks = marks, tasks
        self.planned = False  # since the last trigger

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"marks": self.marks, "tasks": self.tasks, "planned": False}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        self._stop_at("before-commit", self.planned)
        end = super().latestOffset(start, limit)
        self._stop_at("after-commit", self.planned)
        self.planned = False
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Any]:
        tasks = super().partitions(start, end)
        if tasks:
            ranges = [[[*r.tp, r.start, r.end] for r in task.ranges] for task in tasks]
            group = end["@group"]
            with self.tasks.open("a") as file:
                file.write(json.dumps({"reader": group["reader"], "batch": group["batch"], "tasks": ranges}) + "\n")
            self.planned = True
            self._stop_at("planned")
        return tasks

    def read(self, partition: Any) -> Iterator[Any]:
        for batch in super().read(partition):
            yield batch
            self._stop_at("tasks")

    def _stop_at(self, point: str, here: bool = True) -> None:
        if here and armed(self.marks, point):
            wait_at(self.marks, point)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", choices=["groupkafka", "kafka"], required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--name", required=True, help="of this process, for its files")
    parser.add_argument("--options", type=json.loads, required=True)
    sinks = ["parquet", "overwrite", "append", TOPIC, TOPIC_ONCE, *PROCESSORS]
    parser.add_argument("--sink", choices=sinks, default="parquet")
    parser.add_argument("--output", type=json.loads, help="options of a sink that is a topic")
    parser.add_argument("--trigger", default="250 milliseconds")
    parser.add_argument("--available-now", action="store_true")
    parser.add_argument("--also", help="the topic of a second source, in the same group")
    spark_program.add_arguments(parser, master="local[2,4]")
    return parser.parse_args()


def registered(spark: SparkSession, args: argparse.Namespace) -> None:
    """Register the source with a reader that writes its tasks down."""
    marks, tasks = args.directory / "marks", args.directory / "tasks" / f"{args.name}.jsonl"

    class LoggingDataSource(GroupKafkaDataSource):
        def streamReader(self, schema: Any) -> Any:
            return LoggingReader(super().streamReader(schema), marks, tasks)

    spark.dataSource.register(LoggingDataSource)


def read(spark: SparkSession, source: str, options: dict[str, str]) -> DataFrame:
    """A stream of records."""
    return spark.readStream.format(source).options(**options).load()


def of_another(options: dict[str, str], topic: str) -> dict[str, str]:
    """The options of a second source, for another topic and with an event log of its own."""
    log = options.get("eventLog")
    return (
        options
        | {"subscribe": topic}
        | ({} if log is None else {"eventLog": f"{log.removesuffix('.jsonl')}-also.jsonl"})
    )


def processed(df: DataFrame, args: argparse.Namespace, trigger: dict[str, Any]) -> Any:
    """The query, started: a handler gets each record, and what it refuses goes to retry topics and dead letters."""
    handler, write_options = Handler(args.directory / "handled"), None
    if args.sink == PROCESSOR_ONCE:
        handler = ReturningHandler(handler, args.directory.name)
        write_options = {name: value for name, value in args.output.items() if name not in args.options}
    processor = RecordProcessor(
        handler, ordering="unordered", max_local_retries=1, retry_backoff_ms=(10, 20),
        retry_topics=DELAYS_MS, dead_letter_topic=DEAD_LETTERS, fatal=[HopelessError], options=args.options,
        write_options=write_options,
    )  # fmt: skip
    return processor.start(df, str(args.directory / "checkpoint"), **trigger)


def written(df: DataFrame, args: argparse.Namespace) -> Any:
    """The query's writer, to one of the sinks."""
    df = df.selectExpr(*COLUMNS)
    out, marks = str(args.directory / "out"), args.directory / "marks"
    if args.sink in (TOPIC, TOPIC_ONCE):
        records = df.selectExpr(f"{KEY.format(query=args.directory.name)} key", "value")
        return records.writeStream.format(args.source).options(**args.output)
    if args.sink == "parquet":
        return df.writeStream.format("parquet").option("path", out)

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.write.mode(args.sink).parquet(f"{out}/batch={batch_id}")
        if armed(marks, "sink"):
            wait_at(marks, "sink")

    return df.writeStream.foreachBatch(write)


def main() -> None:
    args = arguments()
    spark = spark_program.session(args, SETTINGS)
    if args.source == "groupkafka":
        registered(spark, args)
    trigger = {"availableNow": True} if args.available_now else {"processingTime": args.trigger}
    with orderly(args.options.get("kafka.group.id", "")):
        df = read(spark, args.source, args.options)
        if args.also:
            df = df.unionByName(read(spark, args.source, of_another(args.options, args.also)))
        if args.sink in PROCESSORS:
            query = processed(df, args, trigger)
        else:
            writer = written(df, args).option("checkpointLocation", str(args.directory / "checkpoint"))
            query = writer.trigger(**trigger).start()
        (args.directory / "marks" / f"started-{args.name}").write_text(str(os.getpid()))
        with (args.directory / "progress" / f"{args.name}.jsonl").open("a", buffering=1) as file:
            ended, known = False, ("", -1)
            while not ended:
                ended = bool(query.awaitTermination(0.25))
                for progress in progress_since(query, known):
                    known = progress.timestamp, progress.batchId
                    file.write(progress.json + "\n")
        spark.stop()


def progress_since(query: Any, known: tuple[str, int]) -> list[Any]:
    """The progress behind a known one, all of it, as each batch's is compared with the sink; clocks may jump."""
    last = query.lastProgress
    if last is None or (last.timestamp, last.batchId) == known:
        return []
    recent = list(query.recentProgress)  # these take a while to bring over
    names = [(progress.timestamp, progress.batchId) for progress in recent]
    return recent[names.index(known) + 1 :] if known in names else recent


if __name__ == "__main__":
    main()
