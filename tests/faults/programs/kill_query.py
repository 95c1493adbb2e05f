"""A streaming query in a process of its own, which stops dead at a chosen point of its second batch.

Run by tests with the Python that has the package installed. It says where it is by creating ``<marks>/<point>`` and
waits there until ``<marks>/go`` exists; the test kills it, or lets it go on. Points:

    planned         offsets are in the checkpoint, tasks do not run yet
    tasks           a task has read its first rows
    sink            the sink is done, Spark's commit log is not written
    before-commit   Spark has logged the batch as done, our commit to the group has not been sent
    after-commit    our commit is done
    none            never
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark_kafka_group.source import GroupKafkaDataSource, GroupKafkaStreamReader


def wait_at(marks: Path, point: str) -> None:
    """Say that `point` is reached and stay there."""
    (marks / point).touch()
    while not (marks / "go").exists():
        time.sleep(0.02)


class StoppingReader(GroupKafkaStreamReader):
    """The reader, with a stop at a point of the second batch that this process plans."""

    def __init__(self, reader: GroupKafkaStreamReader, point: str, marks: Path) -> None:
        super().__init__(reader._options)
        self.point, self.marks = point, marks
        self.planned = 0

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"point": self.point, "marks": self.marks, "planned": 0}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        if self.planned >= 2 and self.point == "before-commit":
            wait_at(self.marks, self.point)
        end = super().latestOffset(start, limit)
        if self.planned >= 2 and self.point == "after-commit":
            wait_at(self.marks, self.point)
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Any]:
        tasks = super().partitions(start, end)
        self.planned += bool(tasks)
        if self.planned == 2:
            (self.marks / "second-batch").touch()
            if self.point == "planned":
                wait_at(self.marks, self.point)
        return tasks

    def read(self, partition: Any) -> Iterator[Any]:
        for batch in super().read(partition):
            yield batch
            if self.point == "tasks" and (self.marks / "second-batch").exists():
                wait_at(self.marks, self.point)


def stopping(point: str, marks: Path) -> type[GroupKafkaDataSource]:
    """A data source whose reader stops at `point`."""

    class StoppingDataSource(GroupKafkaDataSource):
        def streamReader(self, schema: Any) -> Any:
            return StoppingReader(super().streamReader(schema), point, marks)

    return StoppingDataSource


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--option", action="append", default=[])
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--point", default="none")
    parser.add_argument("--trigger", default="200 milliseconds")
    parser.add_argument("--available-now", action="store_true")
    parser.add_argument("--batch-seconds", type=float, default=0, help="how long the sink takes")
    args = parser.parse_args()
    marks = args.directory / "marks"
    marks.mkdir(parents=True, exist_ok=True)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(stopping(args.point, marks))

    def write(df: DataFrame, batch_id: int) -> None:
        df.write.mode("overwrite").parquet(f"{args.directory}/out/batch={batch_id}")
        time.sleep(args.batch_seconds)  # a sink that takes this long, not a wait for something
        if args.point == "sink" and (marks / "second-batch").exists():
            wait_at(marks, "sink")

    stream = spark.readStream.format("groupkafka").options(**dict(o.split("=", 1) for o in args.option)).load()
    trigger = {"availableNow": True} if args.available_now else {"processingTime": args.trigger}
    query = (
        stream.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(args.directory / "checkpoint"))
        .trigger(**trigger)
        .start()
    )
    (marks / "started").touch()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
