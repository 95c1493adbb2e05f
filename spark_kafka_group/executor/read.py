"""Reads a task: fetch, decode, Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from spark_kafka_group.errors import ReadError
from spark_kafka_group.executor import decode
from spark_kafka_group.executor.connections import brokers_for
from spark_kafka_group.executor.decode.isolation import AbortedTransactions
from spark_kafka_group.executor.fetch import Chunk, Fetcher
from spark_kafka_group.executor.interceptors import consumed
from spark_kafka_group.options import Options
from spark_kafka_group.task import ReadTask
from spark_kafka_group.wire import LARGEST_BATCH

if TYPE_CHECKING:
    import pyarrow as pa

ARROW_BATCH_BYTES = 4 * 1024 * 1024
"""Size at which a RecordBatch is handed to Spark: its fixed cost vanishes, and it still fits into caches."""


def read(task: ReadTask, options: Options) -> Iterator[pa.RecordBatch]:
    """Records of the task's ranges, as interceptors left them; small partitions share a RecordBatch.

    Raises
    ------
    ReadError
        Naming topic, partition and offset; rows before that offset have been yielded.
    BrokerError, InterceptorError
    """
    batches = _records(task, options)
    return consumed(batches, options.interceptors) if options.interceptors else batches


def _records(task: ReadTask, options: Options) -> Iterator[pa.RecordBatch]:
    twin = decode.load(options.decoder)
    builder = twin.RecordBatchBuilder(
        include_headers=options.include_headers,
        check_crcs=options.check_crcs,
        unpacked_limit=max(LARGEST_BATCH, options.fetch_max_bytes),
        target_bytes=ARROW_BATCH_BYTES,
    )
    fetcher = Fetcher(
        brokers_for(options), task.ranges, twin.scan, options.poll_timeout_ms / 1000, options.fail_on_data_loss
    )
    try:
        for chunk in fetcher.chunks():
            yield from _decoded(chunk, builder)
    except ReadError:
        if builder.rows:
            yield builder.finish()
        raise
    if builder.rows:
        yield builder.finish()


def _decoded(chunk: Chunk, builder: decode.RecordBatchBuilder) -> Iterator[pa.RecordBatch]:
    """Decode a chunk; yield when the builder is full."""
    tp, position = chunk.tp, 0
    aborted = AbortedTransactions(chunk.aborted) if chunk.aborted else None
    while True:
        before = position
        position = builder.append(tp.topic, tp.partition, chunk.records, position, chunk.start, chunk.end, aborted)
        if builder.nbytes >= ARROW_BATCH_BYTES:
            yield builder.finish()
        elif position == before:
            return
