"""Reads a task: fetch, decode, the user's on_consume, Arrow. Connections are kept: Spark reuses its workers."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING

from spark_kafka_group.errors import CorruptRecordError, InterceptorError, ReadError
from spark_kafka_group.executor import decode
from spark_kafka_group.executor.decode.contract import AbortedTransactions
from spark_kafka_group.executor.reading.batch_headers import Chunk
from spark_kafka_group.executor.reading.fetcher import Fetcher
from spark_kafka_group.options import ClientOptions, Options
from spark_kafka_group.options.reading import FAIL, INTERCEPTOR_METHODS
from spark_kafka_group.values import user_classes
from spark_kafka_group.values.offsets import ReadTask
from spark_kafka_group.wire import LARGEST_BATCH, Brokers
from spark_kafka_group.wire.outage import TaskOutage

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_kafka_group.executor.reading.damage.on_corrupt_record import Remedy


_brokers: dict[tuple[int, ClientOptions], Brokers] = {}


def brokers_for(options: Options) -> Brokers:
    """The cluster that `options` name, with its open connections; reads of other topics, offsets or groups share them.
    Keyed by the process too: a worker forked from one with open connections must not use them."""
    key = (os.getpid(), options.client)
    if key not in _brokers:
        _brokers[key] = Brokers(options.client)
    return _brokers[key]


def consumed(batches: Iterable[pa.RecordBatch], named: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """`batches` after the interceptors, called in the order of their names. Raises InterceptorError when one raises, or
    gives back another schema: rows that it was to change, or to hide, do not get through."""
    made = [user_classes.make("interceptors", name, (), INTERCEPTOR_METHODS) for name in named]
    hooks = [interceptor.on_consume for interceptor in made if callable(getattr(interceptor, "on_consume", None))]
    for batch in batches:
        for hook in hooks:
            batch = _intercepted(hook, batch)
        yield batch


def _intercepted(hook: Callable[[pa.RecordBatch], pa.RecordBatch], batch: pa.RecordBatch) -> pa.RecordBatch:
    name = getattr(hook, "__qualname__", repr(hook))
    try:
        changed = hook(batch)
    except user_classes.PASSED_ON:
        raise
    except BaseException as error:
        raise InterceptorError(f"{name} raised {type(error).__name__}: {error}") from error
    schema = getattr(changed, "schema", None)
    if schema != batch.schema:
        given = repr(changed) if schema is None else _one_line(schema)
        raise InterceptorError(f"{name} must return a RecordBatch of schema {_one_line(batch.schema)}, not {given}")
    return changed


def _one_line(schema: object) -> str:
    return ", ".join(str(schema).splitlines())


ARROW_BATCH_BYTES = 4 * 1024 * 1024
"""Size at which a RecordBatch is handed to Spark: its fixed cost vanishes, and it still fits into caches."""


def read(task: ReadTask, options: Options, outlives: bool = False) -> Iterator[pa.RecordBatch]:
    """Records of the task's ranges after the interceptors; small partitions share a RecordBatch.

    `outlives`: whether the task waits for brokers that are away, as streams do, up to maxBrokerOutage if that is set;
        else up to kafkaConsumer.pollTimeoutMs.
    Raises ReadError naming topic, partition and offset; rows before that offset have been yielded. A CorruptRecordError
    only with onCorruptRecord=fail. Raises BrokerError, InterceptorError.
    """
    brokers = brokers_for(options)
    brokers.speak(not outlives)  # a task that waits warns of outages itself
    batches = records(task, options, brokers, outage=TaskOutage(options, brokers) if outlives else None)
    if options.typed:
        from spark_kafka_group.executor.values.typed_batches import TypedBatches  # seldom needed

        batches = TypedBatches(options, outlives).decoded(batches)
    return consumed(batches, options.reading.interceptors) if options.reading.interceptors else batches


def records(
    task: ReadTask,
    options: Options,
    brokers: Brokers,
    others: Callable[[ClientOptions], Brokers] = Brokers,
    outage: TaskOutage | None = None,
) -> Iterator[pa.RecordBatch]:
    """As :func:`read`, before interceptors. `others`: makes connections for the search behind a record batch that
    cannot be read. `outage`: waits for brokers that are away; None where that is an error once reading stalls."""
    twin = decode.load(options.reading.decoder)
    largest = max(LARGEST_BATCH, options.fetching.max_bytes)
    builder = _builder(twin, options, largest)
    fetcher = Fetcher(
        brokers, task.ranges, twin.scan, options.fetching.poll_timeout_ms / 1000, options.reading.fail_on_data_loss,
        largest, epochs=task.leader_epochs, topic_ids=task.topic_ids, outage=outage, nearest=brokers.nearest,
    )  # fmt: skip
    with contextlib.ExitStack() as opened:

        @cache
        def remedy() -> Remedy:
            from spark_kafka_group.executor.reading.damage.on_corrupt_record import Remedy  # seldom needed

            return opened.enter_context(contextlib.closing(Remedy(options, twin, fetcher, largest, others, outage)))

        yield from _batches(fetcher, builder, remedy)


def _columns(options: Options) -> tuple[str, ...]:
    if not options.typed:
        return options.reading.columns
    from spark_kafka_group.executor.values.typed_batches import bytes_columns

    return bytes_columns(options)


def _builder(twin: decode.Decoder, options: Options, largest: int) -> decode.RecordBatchBuilder:
    return twin.RecordBatchBuilder(
        columns=_columns(options),
        check_crcs=options.fetching.check_crcs,
        unpacked_limit=largest,
        target_bytes=ARROW_BATCH_BYTES,
        check_timestamps=options.reading.on_corrupt_record == FAIL,
    )


def _batches(
    fetcher: Fetcher, builder: decode.RecordBatchBuilder, remedy: Callable[[], Remedy]
) -> Iterator[pa.RecordBatch]:
    """All rows; before an error, the rows that come before it."""
    try:
        for chunk in fetcher.chunks():
            shown = remedy().shown(chunk) if chunk.silent else chunk
            if shown is not None:
                yield from _decoded(shown, builder, remedy)
    except ReadError:
        if builder.rows:
            yield builder.finish()
        raise
    if builder.rows:
        yield builder.finish()


def _decoded(
    chunk: Chunk, builder: decode.RecordBatchBuilder, remedy: Callable[[], Remedy]
) -> Iterator[pa.RecordBatch]:
    """Decode a chunk; yield when the builder is full, also halfway through a record batch."""
    tp, begin, position, start, problem = chunk.tp, 0, 0, chunk.start, chunk.problem
    aborted = AbortedTransactions(chunk.aborted) if chunk.aborted else None
    while True:
        before = position
        try:
            position = builder.append(tp.topic, tp.partition, chunk.records, position, start, chunk.end, aborted)
            if not builder.full and position == before:
                if problem is None:
                    return
                raise CorruptRecordError(tp.topic, tp.partition, start, problem)
        except CorruptRecordError as error:
            if builder.full:
                yield builder.finish()
            on = remedy().after(chunk, error, decoded_from=begin, wanted=start, damaged_at=builder.position)
            if on is None:
                return
            chunk, begin, position = on.chunk, on.position, on.position
            start, problem = on.start, None if on.fetcher_redirected else problem
            continue
        if builder.full:
            yield builder.finish()
