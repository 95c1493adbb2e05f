"""A streaming query in real Spark, with either source and any sink. It writes down its tasks' ranges, and its progress.

It stands still at the points of ``points``. SIGINT and SIGTERM stop it as users do: wherever it is.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from faults.evidence import PROCESSOR_ONCE, PROCESSORS, TOPIC, TOPIC_ONCE
from faults.programs import session as spark_program
from faults.programs.handling import DEAD_LETTERS, DELAYS_MS, Handler, HopelessError, ReturningHandler
from faults.programs.points import arm, stand
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
    # Or Spark refuses a checkpoint whose first micro-batch was killed when it began.
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
    "spark.sql.streaming.fileSink.log.deletion": "false",  # what ran in which batch is read from this log, too
    "spark.sql.streaming.noDataProgressEventInterval": "1000",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
}
KEY = "concat_ws(' ', '{query}', topic, partition, offset)"
"""Of a record that a query writes, in Spark's SQL: where it was read."""
COLUMNS = ("topic", "partition", "offset", "cast(value as string) value")


class LoggingReader(GroupKafkaStreamReader):
    """The reader, with a line for each plan of a batch's tasks, and a stop at the point that is armed.

    Parameters
    ----------
    point
        It is armed with the second batch.
    """

    def __init__(self, reader: GroupKafkaStreamReader, marks: Path, tasks: Path, point: str | None) -> None:
        super().__init__(reader._options)
        self.marks, self.tasks, self.point = marks, tasks, point
        self.batches, self.planned = 0, False  # the latter since the last trigger

    def __getstate__(self) -> dict[str, Any]:
        more = {"marks": self.marks, "tasks": self.tasks, "point": None, "batches": 0, "planned": False}
        return super().__getstate__() | more

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        if self.planned:
            stand(self.marks, "before-commit")
        end = super().latestOffset(start, limit)
        if self.planned:
            stand(self.marks, "after-commit")
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
            self.batches += 1
            if self.batches == 2 and self.point is not None:
                arm(self.marks, self.point)
            stand(self.marks, "planned")
        return tasks

    def read(self, partition: Any) -> Iterator[Any]:
        for batch in super().read(partition):
            yield batch
            stand(self.marks, "tasks")


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
    parser.add_argument("--point", help="where it stands still in its second batch")
    parser.add_argument("--batch-seconds", type=float, default=0.0, help="how long a sink that is written over takes")
    parser.add_argument("--seed", type=int, help="so long at most, before and behind the write")
    spark_program.add_arguments(parser, master="local[2,4]")
    return parser.parse_args()


def marks_of(args: argparse.Namespace) -> Path:
    """The folder of this process, in which points are armed."""
    marks: Path = args.directory / "marks" / args.name
    marks.mkdir(parents=True, exist_ok=True)
    return marks


def registered(spark: SparkSession, args: argparse.Namespace) -> None:
    """Register the source with a reader that writes its tasks down."""
    tasks = args.directory / "tasks" / f"{args.name}.jsonl"

    class LoggingDataSource(GroupKafkaDataSource):
        def streamReader(self, schema: Any) -> Any:
            return LoggingReader(super().streamReader(schema), marks_of(args), tasks, args.point)

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
    out, marks = str(args.directory / "out"), marks_of(args)
    rng = None if args.seed is None else random.Random(args.seed)
    if args.sink in (TOPIC, TOPIC_ONCE):
        records = df.selectExpr(f"{KEY.format(query=args.directory.name)} key", "value")
        return records.writeStream.format(args.source).options(**args.output)
    if args.sink == "parquet":
        return df.writeStream.format("parquet").option("path", out)

    def write(batch: DataFrame, batch_id: int) -> None:
        time.sleep(0 if rng is None else args.batch_seconds * rng.random() / 2)
        batch.write.mode(args.sink).parquet(f"{out}/batch={batch_id}")
        stand(marks, "sink")
        time.sleep(args.batch_seconds * (1 if rng is None else rng.random() / 2))  # a sink that takes so long

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
        (marks_of(args) / "started").touch()
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
