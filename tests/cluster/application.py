"""A user's program on a cluster that the tests call: a line of JSON for a call, and one for its answer.

It is run in the environment that the wheel is installed in, and imports nothing of the tests.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.streaming import StreamingQuery


def text(df: DataFrame) -> DataFrame:
    return df.selectExpr("string(value) AS value", "topic", "partition", "offset")


def where_am_i(number: int) -> str:
    """About the Python that runs this task."""
    import spark_kafka_group
    from spark_kafka_group.executor.decode import _decode_c

    time.sleep(0.3)  # so that one executor cannot do all tasks before the others are asked
    return json.dumps(
        {
            "package": spark_kafka_group.__file__, "decoder": _decode_c.__file__, "python": sys.executable,
            "directory": os.getcwd(), "pid": os.getpid(), "path": sys.path,
        }
    )  # fmt: skip


def held(marks: str, offset_to_hold: int) -> Callable[[str, int, int], str]:
    """Values, each noted in `<stage>-<task>-<attempt>`; at one offset the task waits until there is a file `go`."""

    def hold(value: str, partition: int, offset: int) -> str:
        from pyspark import TaskContext

        task = TaskContext.get()
        with Path(marks, f"{task.stageId()}-{task.partitionId()}-{task.attemptNumber()}").open("a") as file:
            print(json.dumps([os.getcwd(), partition, offset]), file=file)
        while offset == offset_to_hold and not Path(marks, "go").exists():
            time.sleep(0.02)
        return value

    return hold


def noting(marks: str, offset_to_hold: int) -> Callable[[Any], None]:
    """A handler that notes each record in its process's file; one in fifty is poison, and one waits for `go`."""

    def handler(record: Any) -> None:
        number = int(record.value[1:])
        with Path(marks, f"worker-{os.getpid()}").open("a") as file:
            print(json.dumps([os.getcwd(), record.partition, number]), file=file)
        while record.offset == offset_to_hold and not Path(marks, "go").exists():
            time.sleep(0.02)
        if number % 50 == 7:
            raise ValueError(f"{number} is poison")

    return handler


def noting_partitions(file: str) -> Callable[[DataFrame, int], None]:
    """A function for foreachBatch that adds a line to `file`: spark.sql.shuffle.partitions of its session."""

    def note(batch: DataFrame, _: int) -> None:
        with open(file, "a") as lines:
            print(batch.sparkSession.conf.get("spark.sql.shuffle.partitions"), file=lines)

    return note


def written_then_failing(options: dict[str, str], failed: str) -> Callable[[DataFrame, int], None]:
    """Writes each micro-batch to Kafka, and fails after the first one, once."""

    def write(batch: DataFrame, number: int) -> None:
        batch.write.format("groupkafka").mode("append").options(**options).save()
        if not Path(failed).exists():
            Path(failed).touch()
            raise ValueError("after the write")

    return write


class Application:
    """The calls; all arguments and answers are JSON."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.queries: dict[str, StreamingQuery] = {}

    def workers(self, tasks: int) -> list[dict[str, Any]]:
        """Where so many tasks ran."""
        rows = self.spark.range(0, tasks, 1, tasks).select(udf(where_am_i)("id").alias("found")).collect()
        return [json.loads(row.found) for row in rows]

    def modules(self) -> list[str]:
        """Modules that this program has imported."""
        return sorted(sys.modules)

    def register(self) -> None:
        """As in a notebook."""
        from spark_kafka_group import GroupKafkaDataSource

        self.spark.dataSource.register(GroupKafkaDataSource)

    def read(self, options: dict[str, str]) -> list[str]:
        """The values of a batch read."""
        return [row.value for row in text(self.spark.read.format("groupkafka").options(**options).load()).collect()]

    def explored(self, options: dict[str, str], topic: str, group: str) -> dict[str, Any]:
        """Rows of each function of `explore`, and the schema."""
        from spark_kafka_group import explore

        tables = {
            "topics": explore.topics(options | {"subscribe": topic}),
            "look": explore.look(options, topic),
            "groups": explore.groups(options),
            "lag": explore.lag(options, group),
            "rate": explore.rate(options, topic),
        }
        rows = {name: table.to_df(self.spark).count() for name, table in tables.items()}
        return rows | {"schema": explore.schema(self.spark, options, topic).simpleString()}

    def rows(self, directory: str) -> list[str]:
        """The values in a query's parquet files, as Spark reads them: only those of batches that succeeded."""
        return [row.value for row in self.spark.read.parquet(directory).select("value").collect()]

    def group_batch(self, options: dict[str, str], output: str) -> dict[str, int]:
        from spark_kafka_group import group_batch

        with group_batch(self.spark, options) as batch:
            text(batch.df).write.mode("overwrite").parquet(output)
        return {"records": batch.records, "generation": batch.generation}

    def start(
        self, options: dict[str, str], directory: str, available_now: bool = False, hold: dict[str, Any] | None = None
    ) -> str:
        """Start a query from Kafka to parquet; returns its id."""
        df = text(self.spark.readStream.format("groupkafka").options(**options).load())
        if hold:
            df = df.withColumn("value", udf(held(**hold))("value", "partition", "offset"))
        query = (
            df.writeStream.format("parquet")
            .option("path", f"{directory}/rows")
            .option("checkpointLocation", f"{directory}/checkpoint")
            .trigger(**{"availableNow": True} if available_now else {"processingTime": "100 milliseconds"})
            .start()
        )
        self.queries[str(query.runId)] = query
        return str(query.runId)

    def each_batch(self, options: dict[str, str], output: dict[str, str], directory: str) -> None:
        """Run a query whose function writes to Kafka, for all records until now; raises the function's error."""
        df = self.spark.readStream.format("groupkafka").options(**options).load().select("value")
        writer = df.writeStream.foreachBatch(written_then_failing(output, f"{directory}/failed"))
        query = writer.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True).start()
        query.awaitTermination(120)

    def set_partitions(self, number: int) -> None:
        self.spark.conf.set("spark.sql.shuffle.partitions", str(number))

    def note_partitions(self, options: dict[str, str], directory: str) -> str:
        """Start a query whose function notes a setting; returns its id."""
        df = self.spark.readStream.format("groupkafka").options(**options).load()
        writer = df.writeStream.foreachBatch(noting_partitions(f"{directory}/noted"))
        query = writer.option("checkpointLocation", f"{directory}/checkpoint").start()
        self.queries[str(query.runId)] = query
        return str(query.runId)

    def copy(self, options: dict[str, str], output: dict[str, str], directory: str) -> str:
        """Start a query from Kafka to Kafka, for all records until now; returns its id."""
        df = self.spark.readStream.format("groupkafka").options(**options).load().select("value")
        writer = df.writeStream.format("groupkafka").options(**output).trigger(availableNow=True)
        query = writer.option("checkpointLocation", f"{directory}/checkpoint").start()
        self.queries[str(query.runId)] = query
        return str(query.runId)

    def handle_records(
        self, options: dict[str, str], directory: str, marks: str, offset_to_hold: int, dead_letter_topic: str
    ) -> str:
        """Hand records to :func:`noting`; returns the query's id."""
        from spark_kafka_group import RecordProcessor

        processor = RecordProcessor(
            noting(marks, offset_to_hold), ordering="unordered", threads=4, cell_records=5, window_cells=4,
            max_local_retries=0, dead_letter_topic=dead_letter_topic, options=options,
        )  # fmt: skip
        df = self.spark.readStream.format("groupkafka").options(**options).load()
        query = processor.start(df, f"{directory}/checkpoint", processingTime="100 milliseconds")
        self.queries[str(query.runId)] = query
        return str(query.runId)

    def handled(self, query: str) -> list[dict[str, Any]]:
        """The counts of each batch with records."""
        observed = [p.observedMetrics["processing"] for p in self.queries[query].recentProgress if p.numInputRows]
        return [{name: row[name] for name in ("records", "done", "retried", "dead")} for row in observed]

    def progress(self, query: str) -> list[dict[str, Any]]:
        """Progress of the batches that had rows."""
        return [
            {"rows": p.numInputRows, "latest": json.loads(p.sources[0].latestOffset)}
            for p in self.queries[query].recentProgress
            if p.numInputRows
        ]

    def ends(self, query: str) -> bool:
        return bool(self.queries[query].awaitTermination(120))

    def stop(self, query: str) -> None:
        self.queries[query].stop()

    def schema(self, options: dict[str, str]) -> str:
        return self.spark.readStream.format("groupkafka").options(**options).load().schema.simpleString()

    def listener(self) -> None:
        from spark_kafka_group import GroupKafkaListener

        GroupKafkaListener(self.spark)


def session(master: str, remote: str, conf: dict[str, str]) -> SparkSession:
    builder = SparkSession.builder.remote(remote) if remote else SparkSession.builder.master(master)
    for name, value in conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--master", default="")
    parser.add_argument("--remote", default="")
    parser.add_argument("--conf", type=json.loads, default={})
    args = parser.parse_args()
    # Answers go where no other process writes: the JVM has our stdout too.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    application = Application(session(args.master, args.remote, args.conf))
    print(json.dumps({"answer": None}), file=answers)
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            answer = {"answer": getattr(application, name)(**arguments)}
        except Exception as error:  # noqa: BLE001 - reported to the test
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers)
    application.spark.stop()


if __name__ == "__main__":
    main()
