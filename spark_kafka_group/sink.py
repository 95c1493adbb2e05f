"""Spark's API of a sink, and nothing else: each call goes to the driver's or the executors' part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from spark_kafka_group.errors import OptionError
from spark_kafka_group.executor.sink_columns import SinkColumns
from spark_kafka_group.options.sink_options import SinkOptions
from spark_kafka_group.spark_processes import SentToTasks, in_one_sentence, keep_imports, no_collection

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

NO_OVERWRITE = (
    "records of a topic cannot be overwritten: write with mode append, or delete them first (kafka-delete-records)"
)


class GroupKafkaWriter(SentToTasks, DataSourceArrowWriter):
    """A batch write. What tasks have written stays written: there is nothing to commit and nothing to take back."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(iterator, self._options, self._columns)


class GroupKafkaStreamWriter(SentToTasks, DataSourceStreamArrowWriter):
    """A micro-batch. As :class:`GroupKafkaWriter`."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(iterator, self._options, self._columns)


def batch_writer(options: SinkOptions, schema: StructType, overwrite: bool) -> GroupKafkaWriter:
    """A batch write that was checked, with its topic.

    Raises
    ------
    OptionError, BrokerError
    """
    if overwrite:
        raise OptionError(NO_OVERWRITE)
    writer = GroupKafkaWriter(options, SinkColumns.of(schema.fields, options))
    with no_collection():
        from spark_kafka_group.driver import sink_topic
    sink_topic.check(options)
    return writer


def stream_writer(options: SinkOptions, schema: StructType) -> GroupKafkaStreamWriter:
    """A micro-batch that was checked. Its tasks look for brokers, so that an outage does not end the query here.

    All output modes append, as in Spark's kafka sink: with ``complete`` each micro-batch writes the whole result again.

    Raises
    ------
    OptionError
    """
    return GroupKafkaStreamWriter(options, SinkColumns.of(schema.fields, options))


def _write(batches: Iterator[pa.RecordBatch], options: SinkOptions, columns: SinkColumns) -> WriterCommitMessage:
    with no_collection():
        from spark_kafka_group.executor.write import write
    with in_one_sentence():
        written = write(batches, options, columns)
    keep_imports()
    return written
