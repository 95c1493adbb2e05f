"""Writing to a topic: groupkafka against Spark's own kafka sink, in turns, on one broker, of the same cached rows.

Beside them stands a sink in Python that drops its rows: no sink in Python takes less time.

python benchmarks/writing.py --jars folder-of-jars      # or without --jars where --packages can download
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa
from common import Goal, Report, in_turns, parser, percentiles, session, trigger_ms
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from spark_kafka_group.testing import KafkaCluster

PARTITIONS = 4
SINKS = ("kafka", "dropping", "groupkafka")
CASES = (
    # size, codec, rows, least ratio wanted
    (100, "none", 2_000_000, 2.0),
    (100, "lz4", 2_000_000, 2.0),
    (1_000, "none", 400_000, 2.0),
    (1_000, "lz4", 400_000, 2.0),
)
"""With each sink's defaults of everything else: acks=all, idempotence, but record batches of 16 KiB, or of 512 KiB."""
BATCHES_OF = {"16 KiB, 5 ms": ("16384", "5"), "512 KiB, 100 ms": ("524288", "100")}
"""Settings that both sinks are given, besides."""
BATCHES, ROWS = 60, 1_000


class Dropping(DataSource):
    """Takes rows from Spark, and does nothing with them."""

    @classmethod
    def name(cls) -> str:
        return "dropping"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return _Dropped()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        return _DroppedOfStream()


class _Dropped(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _drop(iterator)


class _DroppedOfStream(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _drop(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        pass


def _drop(iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    for _ in iterator:
        pass
    return WriterCommitMessage()


def rows(spark: SparkSession, count: int, size: int) -> DataFrame:
    """Cached rows: a key of a few bytes and a value of so many, which lz4 makes about half as long."""
    pieces = ", ".join(f"md5(cast(id * 31 + {n} as string))" for n in range(-(-size // 32)))
    df = spark.range(0, count, 1, PARTITIONS).selectExpr(
        "cast(cast(id as string) as binary) key", f"cast(substring(concat({pieces}), 1, {size}) as binary) value"
    )
    df.cache().count()
    return df


def write(df: DataFrame, sink: str, **options: str) -> None:
    df.write.format(sink).options(**options).mode("append").save()


def in_micro_batches(spark: SparkSession, sink: str, **options: str) -> list[float]:
    """Milliseconds of each trigger with rows."""
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 1).load()
    return trigger_ms(stream.selectExpr("cast(value as string) value"), sink, BATCHES, options)[1:]


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--scale", type=float, default=1.0, help="times the rows of each case")
    args = arguments.parse_args()
    spark = session(args.jars)
    spark.dataSource.register(Dropping)
    report = Report("writing", "How fast is writing to a topic (4 partitions, 2 cores, acks=all, idempotence)?")
    with KafkaCluster() as cluster:
        for size, codec, whole, goal in CASES:
            count = max(1000, int(whole * args.scale))
            df, topic = rows(spark, count, size), f"w{size}-{codec}"
            cluster.create_topic(topic, partitions=PARTITIONS)
            options = {
                "kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic, "kafka.compression.type": codec,
            }  # fmt: skip
            for case, columns in (("keyed", ["key", "value"]), ("no key", ["value"])):
                sides = {sink: partial(write, df.select(*columns), sink, **options) for sink in SINKS}
                report.compare(f"{size:,} B, {codec}, {case}", sides, args.rounds, goal=goal, per=("rows", count))
            for title, (batch_size, linger_ms) in BATCHES_OF.items() if codec == "none" else ():
                same = {**options, "kafka.batch.size": batch_size, "kafka.linger.ms": linger_ms}
                sides = {sink: partial(write, df, sink, **same) for sink in ("kafka", "groupkafka")}
                report.compare(f"{size:,} B, keyed, both {title}", sides, args.rounds, per=("rows", count))
            df.unpersist()
            cluster.admin.delete_topics([topic])
        topic = cluster.create_topic("small", partitions=PARTITIONS)
        options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic}
        runs = {sink: partial(in_micro_batches, spark, sink, **options) for sink in SINKS}
        triggers = {
            sink: [ms for run in measured for ms in run] for sink, measured in in_turns(runs, args.rounds).items()
        }
        cells: dict[str, float | str] = {}
        for sink, each in triggers.items():
            cells[f"{sink} p50 ms"], cells[f"{sink} p99 ms"] = percentiles(each)
        kafka, groupkafka = (percentiles(triggers[sink])[0] for sink in ("kafka", "groupkafka"))
        cells["ratio"] = kafka / groupkafka
        report.row(f"micro-batches of {ROWS:,}", cells, Goal("ratio", at_least=1.0), triggers_ms=triggers)
    spark.stop()


if __name__ == "__main__":
    main()
