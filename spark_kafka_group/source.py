"""Spark's data source API, and nothing else: each call goes to the driver's or the executors' part."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from spark_kafka_group.errors import GroupKafkaError, OptionError
from spark_kafka_group.options import Options
from spark_kafka_group.spark.spark_processes import (
    SentToTasks,
    end_quietly,
    in_one_sentence,
    keep_imports,
    no_collection,
)
from spark_kafka_group.values.offsets import ReadTask
from spark_kafka_group.values.schema import spark_schema, why_others

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

    from spark_kafka_group.driver.stream import StreamDriver
    from spark_kafka_group.options.sink_options import SinkOptions

NO_TABLES = (
    "Spark keeps no options of a table whose source is in Python: take "
    "CREATE TEMPORARY VIEW ... USING groupkafka OPTIONS (...), which keeps them"
)
WRITE_WITHOUT_OPTIONS = (
    "the write has no options. Spark keeps none of a table whose source is in Python: give them to each write, as in "
    "INSERT INTO orders WITH (`kafka.bootstrap.servers` = 'host:9092', topic = 'orders') SELECT ..."
)
WITHOUT_OPTIONS = (
    "the source has no options. Spark keeps none of a table whose source is in Python: give them to each read, as in "
    "SELECT * FROM orders WITH (`kafka.bootstrap.servers` = 'host:9092', subscribe = 'orders')"
)
OF_A_TABLE = "provider"  # Spark's own key among the options of CREATE TABLE


class GroupKafkaDataSource(DataSource):
    """``format("groupkafka")``: Kafka topics read by a query that is a real member of its consumer group, or written.

    Raises
    ------
    OptionError
        From :meth:`schema`, :meth:`reader` and the writers when an option is wrong; from :meth:`streamReader` with the
        first call of its reader. Before any network call.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        end_quietly()
        self._parsed: Options | None = None

    def _options(self) -> Options:
        if self._parsed is None:  # not before it is known that the query reads: a sink's options are others
            with in_one_sentence():
                if OF_A_TABLE in self.options:
                    raise OptionError(NO_TABLES)
                if not self.options:
                    raise OptionError(WITHOUT_OPTIONS)
                self._parsed = Options.parse(self.options)
        return self._parsed

    def _sink_options(self) -> SinkOptions:
        from spark_kafka_group.options.sink_options import SPARKS_OWN, SinkOptions

        end_quietly()
        if not self.options.keys() - SPARKS_OWN:
            raise OptionError(WRITE_WITHOUT_OPTIONS)
        return SinkOptions.parse(self.options)

    @classmethod
    def name(cls) -> str:
        end_quietly()  # Spark asks for names in a worker of its own
        # `spark.dataSource.register` asks for it first. Workers, and clients of Spark Connect, have no context.
        core = sys.modules.get("pyspark.core.context")
        if core is not None and core.SparkContext._active_spark_context is not None:
            from spark_kafka_group.spark.installation import require_importable

            require_importable(core.SparkContext._active_spark_context)
        return "groupkafka"

    def _decoding(self) -> Options:
        """The options with the types of keys and values. A registry is asked once: Spark keeps the source that was."""
        options = self._options()
        if options.typed or not options.values.given():
            return options
        from spark_kafka_group.executor.schemas.typed_columns import resolved
        from spark_kafka_group.executor.values.typed_batches import TypedBatches

        with in_one_sentence():
            decoding = dataclasses.replace(options, typed=resolved(options))
            TypedBatches(decoding)  # an error now, not in a task
        self._parsed = decoding
        return decoding

    def schema(self) -> StructType:
        options = self._decoding()
        return spark_schema(options.reading.columns, _types(options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from spark_kafka_group.options.checks import check_for_batch

        end_quietly()  # Spark plans a batch read in a worker, where the source arrives pickled
        options = self._decoding()
        with in_one_sentence():
            check_for_batch(options)
            _check_columns(schema, options)
        return (PushDownReader if options.reading.push_down_predicate else GroupKafkaReader)(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        end_quietly()  # in a process of the query's own, where the source arrives pickled
        try:
            options = self._decoding()
            _check_columns(schema, options)
        except GroupKafkaError as error:
            return RefusedStreamReader(error)
        return GroupKafkaStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from spark_kafka_group.sink import batch_writer

        with in_one_sentence():
            return batch_writer(self._sink_options(), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from spark_kafka_group.sink import stream_writer

        with in_one_sentence():
            return stream_writer(self._sink_options(), schema)


def _types(options: Options) -> dict[str, DataType]:
    if not options.typed:
        return {}
    from spark_kafka_group.executor.schemas.typed_columns import spark_types

    return spark_types(options)


def _check_columns(schema: StructType | None, options: Options) -> None:
    problem = why_others(schema, options.reading.columns, _types(options)) if schema else None
    if problem is not None:
        raise OptionError(problem)


class GroupKafkaReader(SentToTasks, DataSourceReader):
    """A batch read. Joins no group and commits nothing; :func:`spark_kafka_group.group_batch` does."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._filters: list[Filter] = []

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_filters": []}

    def partitions(self) -> Sequence[ReadTask]:
        with no_collection():
            from spark_kafka_group.driver import batch_read, filters, process

        process.configure_logging()
        with in_one_sentence():
            tasks = batch_read.read_tasks(self._options, filters.understood(self._filters)[0])
        # Spark makes an empty list a task for None.
        return tasks or [ReadTask(())]

    def read(self, partition: ReadTask) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        return _read(partition, self._options)


class PushDownReader(GroupKafkaReader):
    """A batch read of less than all, where the query's filters allow.

    A class of its own, because Spark refuses readers that have pushFilters while its own setting is off.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        from spark_kafka_group.driver.filters import understood

        if self._options.reading.interceptors:
            return filters  # they may change the columns of filters
        self._filters = filters
        return understood(filters)[1]


class GroupKafkaStreamReader(SentToTasks, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream. The driver's half lives in Spark's reader process, the other half is pickled into every task."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._driver: StreamDriver | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_driver": None}

    def _started(self) -> StreamDriver:
        if self._driver is None:
            with no_collection():
                from spark_kafka_group.driver.stream import StreamDriver

            self._driver = StreamDriver(self._options)
        return self._driver

    def initialOffset(self) -> dict[str, Any]:
        with in_one_sentence():
            return self._started().initial_offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        most, least = self._options.reading.max_offsets_per_trigger, self._options.reading.min_offsets_per_trigger
        if most is not None:
            return ReadMaxRows(most)
        if self._options.reading.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.reading.max_bytes_per_trigger)
        return ReadAllAvailable() if least is None else ReadMinRows(least)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        with in_one_sentence():
            driver = self._started()
            most, least, most_bytes = None, None, None  # for ReadAllAvailable; trigger(once=True) passes it too
            if not isinstance(limit, ReadAllAvailable):
                # Spark's Python API has no limit of several kinds, so the options are asked.
                reading = self._options.reading
                most, least = reading.max_offsets_per_trigger, reading.min_offsets_per_trigger
                most_bytes = reading.max_bytes_per_trigger
            return driver.latest_offset(start, most, least, most_bytes)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._started().report_latest_offset()

    def prepareForTriggerAvailableNow(self) -> None:
        with in_one_sentence():
            self._started().prepare_available_now()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[ReadTask]:
        with in_one_sentence():
            return self._started().read_tasks(start, end)

    def read(self, partition: ReadTask) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        return _read(partition, self._options, outlives=True)

    def commit(self, end: dict[str, Any]) -> None:
        with in_one_sentence():
            self._started().commit(end)

    def stop(self) -> None:
        if self._driver is not None:
            self._driver.stop()


class RefusedStreamReader(GroupKafkaStreamReader):
    """Raises an error of ``streamReader()`` at its first call, whichever it is.

    Where ``streamReader()`` itself raises, Spark's runner has no reader to stop, and shows that error alone.
    """

    def __init__(self, error: GroupKafkaError) -> None:
        self._error = error
        self._driver = None

    def _started(self) -> NoReturn:
        with in_one_sentence():
            raise self._error

    def getDefaultReadLimit(self) -> ReadLimit:
        self._started()


def _read(task: ReadTask, options: Options, outlives: bool = False) -> Iterator[pa.RecordBatch]:
    with no_collection():
        from spark_kafka_group.executor.reading.read import read

    with in_one_sentence():
        yield from read(task, options, outlives)
    keep_imports()
