"""Archives the classes that Spark's JVM loads in tests (CDS), so that the next ones start in half the time.

    python tests/support/spark_classes.py FILE

An archive is for one JVM and one set of jars; a JVM that is given one of others goes without it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from spark_kafka_group.testing.download import ANY_JVM


class Numbers(DataSource):
    """Ten rows, as a batch or as the only micro-batch of a stream."""

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "value long"

    def reader(self, schema: Any) -> DataSourceReader:
        return Reader()

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return StreamReader()


def rows() -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"value": list(range(10))})


class Reader(DataSourceReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return rows()


class StreamReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        return {"end": 0}

    def latestOffset(self) -> dict[str, int]:
        return {"end": 10}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return rows()


def use(spark: SparkSession, directory: str) -> None:
    """The most frequent steps of tests."""
    spark.dataSource.register(Numbers)
    numbers = spark.read.format("numbers").load()
    assert numbers.groupBy("value").count().orderBy("value").selectExpr("sum(value)").collect()[0][0] == 45
    assert numbers.mapInArrow(lambda batches: batches, "value long").count() == 10
    stream = spark.readStream.format("numbers").load()
    files = stream.writeStream.format("parquet").option("path", f"{directory}/out")
    files.option("checkpointLocation", f"{directory}/files").trigger(once=True).start().awaitTermination()
    assert spark.read.parquet(f"{directory}/out").count() == 10

    def keep(batch: DataFrame, _: int) -> None:
        assert len(batch.collect()) == 10

    each = stream.writeStream.foreachBatch(keep).option("checkpointLocation", f"{directory}/each")
    each.trigger(once=True).start().awaitTermination()


def main(file: Path) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.pop("SPARK_SUBMIT_OPTS", None)
    file.unlink(missing_ok=True)
    options = {
        "spark.driver.extraJavaOptions": f"-Xlog:disable {ANY_JVM} -XX:ArchiveClassesAtExit={file}",
        "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.sql.shuffle.partitions": "2",
    }  # fmt: skip
    spark = SparkSession.builder.master("local[2]").config(map=options).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    with tempfile.TemporaryDirectory() as directory:
        use(spark, directory)
        jvm = SparkContext._gateway.proc
        spark.stop()
    jvm.stdin.close()  # which ends it, and then it writes
    jvm.wait(600)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
