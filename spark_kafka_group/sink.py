"""Spark's API of a sink, and nothing else: each call goes to the driver's or the executors' part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from spark_kafka_group.errors import OptionError
from spark_kafka_group.executor.writing.sink_columns import SinkColumns
from spark_kafka_group.options.sink_options import SinkOptions
from spark_kafka_group.options.typed_values import BINARY
from spark_kafka_group.spark.spark_processes import (
    SentToTasks,
    ends_micro_batches,
    in_one_sentence,
    keep_imports,
    no_collection,
)
from spark_kafka_group.values.planned_transactions import PlannedTransactions, RowsWritten, TaskWrite

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql.types import StructType

NO_OVERWRITE = (
    "records of a topic cannot be overwritten: write with mode append, or delete them first (kafka-delete-records)"
)


class GroupKafkaWriter(SentToTasks, DataSourceArrowWriter):
    """A batch write.

    With at-least-once, what tasks have written stays written: there is nothing to commit and nothing to take back.
    """

    def __init__(self, options: SinkOptions, columns: SinkColumns, planned: PlannedTransactions | None = None) -> None:
        self._options = options
        self._columns = columns
        self._planned = planned

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(iterator, self._options, self._columns, self._planned)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _commit(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _abort(self._options, messages, self._planned)


class GroupKafkaStreamWriter(SentToTasks, DataSourceStreamArrowWriter):
    """A micro-batch. As :class:`GroupKafkaWriter`.

    Spark makes one to plan a micro-batch, which is pickled into its tasks, and another one to commit or abort it.
    """

    def __init__(self, options: SinkOptions, columns: SinkColumns, planned: PlannedTransactions | None = None) -> None:
        self._options = options
        self._columns = columns
        self._planned = planned

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(iterator, self._options, self._columns, self._planned)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _commit(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _abort(self._options, messages)


def batch_writer(options: SinkOptions, schema: StructType, overwrite: bool) -> GroupKafkaWriter:
    """A batch write that was checked, with its topic.

    Raises
    ------
    OptionError, RegistryError, BrokerError
    """
    if overwrite:
        raise OptionError(NO_OVERWRITE)
    columns = _columns(schema, options, in_stream=False)
    with no_collection():
        from spark_kafka_group.wire import writable_topics
    writable_topics.check(options)
    return GroupKafkaWriter(options, columns, _planned(options))


def stream_writer(options: SinkOptions, schema: StructType) -> GroupKafkaStreamWriter:
    """A micro-batch that was checked. Its tasks look for brokers, so that an outage does not end the query here.

    All output modes append, as in Spark's kafka sink: with ``complete`` each micro-batch writes the whole result again.

    Raises
    ------
    OptionError
    """
    if ends_micro_batches():
        return GroupKafkaStreamWriter(options, SinkColumns.from_fields(schema.fields, options))
    columns = _columns(schema, options, in_stream=True)
    with no_collection():
        from spark_kafka_group.driver import process
        from spark_kafka_group.transactions import checkpoint_log
    checkpoint_log.check(options.transacting.transactional_id, options.checkpoint, process.shared_directory())
    return GroupKafkaStreamWriter(options, columns, _planned(options))


def _columns(schema: StructType, options: SinkOptions, in_stream: bool) -> SinkColumns:
    """The columns that are written, with their schemas where they have formats."""
    columns = SinkColumns.from_fields(schema.fields, options)
    if {options.values.key_format, options.values.value_format} == {BINARY}:
        return columns
    with no_collection():
        from spark_kafka_group.executor.writing.row_schemas import with_schemas
    return with_schemas(columns, schema.fields, options, in_stream)


def _planned(options: SinkOptions) -> PlannedTransactions | None:
    """The plan of an exactly-once write."""
    if not options.is_exactly_once:
        return None
    with no_collection():
        from spark_kafka_group.driver import process
        from spark_kafka_group.transactions.planning import planned
    process.configure_logging()
    return planned(options.transactions, process.shared_directory())


def _write(
    batches: Iterator[pa.RecordBatch], options: SinkOptions, columns: SinkColumns, planned: PlannedTransactions | None
) -> WriterCommitMessage:
    with no_collection():
        from spark_kafka_group.executor.writing.write import write
    with in_one_sentence():
        if planned is None:
            written = write(batches, options, columns)
        else:
            from spark_kafka_group.executor.writing.task_transaction import write_in_transaction

            written = write_in_transaction(batches, options, columns, planned)
    keep_imports()
    return written


def _commit(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    if options.is_exactly_once:
        with no_collection():
            from spark_kafka_group.transactions.deciding import decide_and_end
        shared = _shared_on_the_driver()
        with in_one_sentence():
            decide_and_end(options.transactions, _told(messages), shared)


def _abort(
    options: SinkOptions, messages: Sequence[WriterCommitMessage | None], planned: PlannedTransactions | None = None
) -> None:
    if options.is_exactly_once:
        with no_collection():
            from spark_kafka_group.transactions.deciding import abort_undecided
        shared = _shared_on_the_driver()
        with in_one_sentence():
            abort_undecided(options.transactions, _told(messages), shared, planned)


def _shared_on_the_driver() -> Path | None:
    """The directory that processes of the application share; their logging is set up with it."""
    with no_collection():
        from spark_kafka_group.driver import process
    process.configure_logging()
    return process.shared_directory()


def _told(messages: Sequence[WriterCommitMessage | None]) -> list[TaskWrite | None]:
    return [message.told if isinstance(message, RowsWritten) else None for message in messages]
