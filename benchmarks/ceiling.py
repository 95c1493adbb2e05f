"""groupkafka's share of Spark's highest rate from a Python source: one that yields ready-made batches.

python benchmarks/ceiling.py
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from common import Goal, Report, alternate, fill, noop, parser, session
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from spark_kafka_group.testing import KafkaCluster
from spark_kafka_group.values.schema import USUAL, spark_schema

if TYPE_CHECKING:
    import pyarrow as pa

PARTITIONS = 4
CASES = (
    # size, records, least share of the ceiling wanted
    (100, 4_000_000, 0.85),
    (1_000, 1_000_000, 0.75),
)


class ReadyMade(DataSource):
    """Batches of records that are all the same, as large as groupkafka's, in as many tasks."""

    @classmethod
    def name(cls) -> str:
        return "readymade"

    def schema(self) -> str:
        return spark_schema(USUAL)

    def reader(self, schema: object) -> DataSourceReader:
        return ReadyMadeReader(int(self.options["records"]), int(self.options["size"]))


@dataclass
class Rows(InputPartition):
    """So many rows, in one task."""

    count: int


class ReadyMadeReader(DataSourceReader):
    def __init__(self, records: int, size: int) -> None:
        self._records = records
        self._size = size

    def partitions(self) -> list[Rows]:
        return [Rows(self._records // PARTITIONS)] * PARTITIONS

    def read(self, partition: Rows) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        import pyarrow as pa

        from spark_kafka_group.executor.reading.read import ARROW_BATCH_BYTES
        from spark_kafka_group.values.schema import USUAL, arrow_schema

        schema = arrow_schema(USUAL)
        rows = ARROW_BATCH_BYTES // (self._size + 41)
        value = bytes(i % 256 for i in range(self._size))
        numbers = pa.array(range(rows), pa.int64())
        columns = {
            "key": pa.nulls(rows, pa.binary()),
            "value": pa.array([value] * rows, pa.binary()),
            "topic": pa.array(["t"] * rows, pa.string()),
            "partition": numbers.cast(pa.int32()),
            "offset": numbers,
            "timestamp": numbers.cast(schema.field("timestamp").type),
            "timestampType": numbers.cast(pa.int32()),
        }
        arrays = [columns[name] for name in schema.names]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        left = partition.count
        while left > 0:
            yield batch if left >= rows else batch.slice(0, left)
            left -= rows


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--scale", type=float, default=1.0, help="times the records of each case")
    args = arguments.parse_args()
    spark = session(args.jars)
    spark.dataSource.register(ReadyMade)
    report = Report("ceiling", "How near is a batch read to what Spark takes in from a Python source at most?")
    with KafkaCluster() as cluster:
        for size, whole, goal in CASES:
            records = int(whole * args.scale)
            fill(cluster, f"c{size}", PARTITIONS, records, size)
            options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": f"c{size}"}
            ready = spark.read.format("readymade").options(records=records, size=size).load()
            ours = spark.read.format("groupkafka").options(**options, startingOffsets="earliest").load()
            assert ready.count() == ours.count() == records
            sides = {"ready-made": lambda df=ready: noop(df), "groupkafka": lambda df=ours: noop(df)}
            times = alternate(sides, args.rounds)
            best, reached = (sorted(values)[len(values) // 2] for values in times.values())
            cells = {"ready-made M rows/s": records / best / 1e6, "groupkafka M rows/s": records / reached / 1e6}
            report.row(f"{size:,} B", cells | {"share": best / reached}, Goal("share", at_least=goal), seconds=times)
    spark.stop()


if __name__ == "__main__":
    main()
