"""What crosses to the executors for one Spark task."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from spark_kafka_group.offsets import OffsetRange


@dataclass(frozen=True)
class ReadTask(InputPartition):
    """Ranges that one task reads, one after the other or interleaved, in offset order within a partition."""

    ranges: tuple[OffsetRange, ...]
