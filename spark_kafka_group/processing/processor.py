"""Hands the records of a query to a function, one at a time, on executors, and writes what it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import BinaryType, NullType

from spark_kafka_group.errors import OptionError
from spark_kafka_group.metrics.group_metrics import OBSERVED
from spark_kafka_group.processing.processor_settings import Backoff, Settings, TopicsWritten
from spark_kafka_group.processing.record import REQUIRED, Record, check_handler
from spark_kafka_group.spark.spark_processes import map_in_arrow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True)
class Processed:
    """How the records of a batch ended: each is done, or was handed to a retry topic or a dead-letter topic.

    Attributes
    ----------
    records, done, retried, dead
        ``records == done + retried + dead``.
    tries_again
        How often a handler got the same record again, after a pause.
    stalled
        How often a handler was abandoned as it did not return.
    most_in_flight
        Most records that a task had in its window.
    oldest_cell_ms
        Longest time that a cell stayed in a window.
    latency_p50_ms, latency_p99_ms
        Of the handler's calls, give or take 6 %; None without a call.
    """

    records: int
    done: int
    retried: int
    dead: int
    tries_again: int
    stalled: int
    most_in_flight: int
    oldest_cell_ms: float
    latency_p50_ms: float | None
    latency_p99_ms: float | None

    @classmethod
    def of(cls, row: Row | Mapping[str, Any]) -> Processed:
        """From a row of ``observedMetrics``, whose values are null when no task ran."""
        latency = row["latencyMs"] or (None, None)
        return cls(
            row["records"] or 0, row["done"] or 0, row["retried"] or 0, row["dead"] or 0, row["triesAgain"] or 0,
            row["stalled"] or 0, row["mostInFlight"] or 0, row["oldestCellMs"] or 0.0, latency[0], latency[1],
        )  # fmt: skip


class RecordProcessor:
    """Calls `handler` for each record of a query, in tasks on executors; the source's commit waits for all of them.

    ::

        processor = RecordProcessor(
            charge, ordering="key", threads=32, options=options,
            retry_topics=[60_000, 600_000], dead_letter_topic="{topic}-dlt",
        )
        options |= {"includeHeaders": "true", "retryTopics": "60000,600000"}
        df = spark.readStream.format("groupkafka").options(**options).load()
        processor.start(df, "/data/charge.checkpoint").awaitTermination()

    A micro-batch succeeds when every record of it is done, or goes to another topic, and all that goes to topics is
    acknowledged. After a crash its records are handled again: at least once, so handlers must tolerate a record twice.
    What is written is there once with ``deliveryGuarantee=exactly-once`` in `write_options`.

    Parameters
    ----------
    handler
        A function of a :class:`Record`, or an ``async def``; sent to executors, so it has to be picklable. A record is
        done when it returns, and has failed when it raises an Exception. It returns None, or a :class:`ProducerRecord`
        or several, which are written by ``format("groupkafka")``.
    ordering
        ``partition``: records of a partition one after the other; ``key``: records of a partition with the same key
        one after the other; ``unordered``.
    threads
        Handlers at work at once in one Spark task: threads, or coroutines.
    cell_records, window_cells
        The sliding window of a task: most `window_cells` cells of `cell_records` consecutive records are in flight.
    stall_timeout_ms
        A handler that takes longer has failed, with HandlerStalledError. A thread cannot be ended, so what it does goes
        on; a coroutine is cancelled. Sending its record to another topic does not count.
    max_local_retries, retry_backoff_ms
        How often a record is tried again at once, and the pauses: the first, doubled for each further one, and the
        longest. With an order, the records behind it wait.
    retry_topics
        Delays in milliseconds. A record that still fails goes to ``<topic>-retry-<delay>`` of the first, from there to
        that of the second, and so on. The source's option ``retryTopics`` reads them.
    dead_letter_topic
        Where records go after that; ``{topic}`` in it is the record's first topic. Without one the query stops.
    error_headers
        The format of the headers that describe the failure: ``connect``, ``spring`` or ``kip1191``.
    fatal
        Exceptions that make a record a dead letter at once.
    options
        The source's, for brokers and security: needed to write to topics.
    write_options
        Those that the sink alone has: ``topic``, of records that name none, ``deliveryGuarantee``, ``kafka.linger.ms``,
        ... For exactly-once `options` have ``kafka.transactional.id``. With ``valueFormat`` or ``keyFormat`` handlers
        return objects, and a record that does not fit its schema is fatal.

    Raises
    ------
    OptionError
        Before any data moves, when arguments are wrong or contradict each other.
    """

    def __init__(
        self,
        handler: Callable[[Record], Any],
        *,
        ordering: str = "partition",
        threads: int = 16,
        cell_records: int = 100,
        window_cells: int = 32,
        stall_timeout_ms: int = 300_000,
        max_local_retries: int = 3,
        retry_backoff_ms: tuple[float, float] = (300, 60_000),
        retry_topics: Sequence[int] = (),
        dead_letter_topic: str | None = None,
        error_headers: str = "connect",
        fatal: Sequence[type[Exception]] = (),
        options: Mapping[str, Any] | None = None,
        write_options: Mapping[str, Any] | None = None,
    ) -> None:
        check_handler(handler)
        written = None if options is None else TopicsWritten.from_options(options, write_options or {}, retry_topics)
        if written is None and write_options is not None:
            raise OptionError("write_options needs options: those of the source, which say where the brokers are")
        first_ms, max_ms = retry_backoff_ms
        self._handler = handler
        self._written = written
        self._settings = Settings(
            ordering, threads, cell_records, window_cells, stall_timeout_ms, max_local_retries,
            Backoff(first_ms, max_ms), tuple(retry_topics), dead_letter_topic, error_headers, tuple(fatal),
            None if written is None else written.group, None if written is None else written.topic, _name_of(handler),
            None if written is None else written.formats_of_a_stream,
        )  # fmt: skip
        _check_picklable(handler, self._settings)

    def start(self, df: DataFrame, checkpoint: str, *, query_name: str | None = None, **trigger: Any) -> StreamingQuery:
        """Start a stream.

        The counts of each micro-batch are in its progress: ``Processed.of(progress.observedMetrics["processing"])``.

        Parameters
        ----------
        df
            A stream with the source's columns; rows may be left out, but columns not.
        checkpoint
            Directory of the query's checkpoint.
        trigger
            As for ``DataStreamWriter.trigger``: ``processingTime="10 seconds"``, ``availableNow=True``.

        Raises
        ------
        OptionError, BrokerError
        """
        counted = self._handled(df, self._settings).observe(OBSERVED, *_totals())
        if self._written is None:
            writer = counted.writeStream.format("noop")
        else:
            if hasattr(df.sparkSession, "_jsparkSession"):  # with Spark Connect the server alone may reach the brokers
                self._written.check_topic()
            writer = _rows(counted).writeStream.format("groupkafka").options(**self._written.of_a_stream)
        writer = writer.option("checkpointLocation", checkpoint)
        if query_name is not None:
            writer = writer.queryName(query_name)
        if trigger:
            writer = writer.trigger(**trigger)
        return writer.start()

    def run(self, df: DataFrame) -> Processed:
        """Handle the records of a batch read, such as ``batch.df`` of a :func:`group_batch`.

        Raises
        ------
        OptionError, BrokerError
            Before data moves.
        pyspark.errors.PySparkException
            With ProcessingError, when a record could neither be handled nor be handed on.
        """
        from pyspark.sql import Observation

        if self._written is None:
            [row] = self._handled(df, self._settings).agg(*_totals()).collect()
            return Processed.of(row)
        observation = Observation(OBSERVED)
        settings = replace(self._settings, formats=self._written.formats_of_a_batch)
        rows = _rows(self._handled(df, settings).observe(observation, *_totals()))
        rows.write.format("groupkafka").options(**self._written.of_a_batch).mode("append").save()
        return Processed.of(observation.get)

    def _handled(self, df: DataFrame, settings: Settings) -> DataFrame:
        from spark_kafka_group.processing.handler_task import SCHEMA

        missing = [name for name in REQUIRED if name not in df.columns]
        if missing:
            raise OptionError(
                f"a RecordProcessor needs the source's columns, and this DataFrame lacks {', '.join(missing)}"
            )
        typed = [name for name in ("key", "value") if not isinstance(df.schema[name].dataType, BinaryType | NullType)]
        if typed:
            raise OptionError(
                f"a RecordProcessor gives handlers the bytes of records, and column {typed[0]} is "
                f"{df.schema[typed[0]].dataType.simpleString()}: leave {typed[0]}Format out, and decode in the handler"
            )
        if self._settings.hands_on:
            if "headers" not in df.columns:
                raise OptionError(
                    "retry_topics and dead_letter_topic need the headers of records, which count the attempts: set the "
                    "source's option includeHeaders to true"
                )
            from spark_kafka_group.processing.handler_task import check_topics

            assert self._written is not None, "checked with the settings"
            check_topics(self._settings, self._written.source.reading.topics, self._written.source)
        return map_in_arrow(df, partial(_handle, self._handler, settings), SCHEMA)


def _handle(
    handler: Callable[[Record], Any], settings: Settings, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    from spark_kafka_group.processing.handler_task import handle

    return handle(batches, handler, settings)


def _rows(counted: DataFrame) -> DataFrame:
    """Those of them that are for topics."""
    from spark_kafka_group.executor.writing.sink_columns import NAMES

    return counted.where("topic IS NOT NULL").select(*NAMES)


def _totals() -> list[Any]:
    from pyspark.sql import functions as f

    sums = [f.sum(name).alias(name) for name in ("records", "done", "retried", "dead", "triesAgain", "stalled")]
    highest = [f.max(name).alias(name) for name in ("mostInFlight", "oldestCellMs")]
    return [*sums, *highest, f.expr("percentile(latencyMs, array(0.5D, 0.99D), calls)").alias("latencyMs")]


def _check_picklable(handler: Callable[[Record], Any], settings: Settings) -> None:
    from pyspark import cloudpickle

    try:
        cloudpickle.dumps((handler, settings))  # type: ignore[no-untyped-call]
    except Exception as error:
        raise OptionError(
            f"the handler {settings.handler_name} cannot be sent to executors: {error}. Make connections and similar "
            f"objects in the handler's first call, and keep them in a global"
        ) from error


def _name_of(handler: Callable[[Record], Any]) -> str:
    kind = handler if hasattr(handler, "__qualname__") else type(handler)
    return f"{kind.__module__}:{kind.__qualname__}"
