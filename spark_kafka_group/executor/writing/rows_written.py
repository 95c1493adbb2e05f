"""What a task has written, for the driver."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.values.planned_transactions import TaskWrite


@dataclass(frozen=True)
class RowsWritten(WriterCommitMessage):
    """Records that brokers have acknowledged.

    Attributes
    ----------
    records
        How many, by partition.
    told
        Of an exactly-once write: what the driver needs to publish them.
    """

    records: dict[TopicPartition, int]
    told: TaskWrite | None = None
