"""``watch``: a query's micro-batches in a notebook's cell or a terminal. Ctrl-C ends the view, and nothing else."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Iterator

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from spark_kafka_group.live.bar import RowCounts, bar, generation_of, lag_of, of_stage


class Batches:
    """Micro-batches with records that have ended, as Spark's progress shows them."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._seen: set[int] = set()

    def ended(self) -> list[StreamingQueryProgress]:
        """Those that no call before has returned."""
        batches = [batch for batch in self._query.recentProgress if batch.numInputRows]
        ended = [batch for batch in batches if batch.batchId not in self._seen]
        self._seen.update(batch.batchId for batch in ended)
        return ended


def line(batch: StreamingQueryProgress, rest: str) -> str:
    """A line about a batch; `rest` stands behind the numbers of batch and generation."""
    generation = generation_of(batch)
    return f"batch {batch.batchId:>5}  generation {'-' if generation is None else generation:>4}  {rest}"


def rows_and_lag(batch: StreamingQueryProgress) -> str:
    """The rest of a line, where nothing else is to be said."""
    return (
        f"records {batch.numInputRows:>9,}  {batch.processedRowsPerSecond or 0:>9,.0f} rows/s  lag {lag_of(batch):>9,}"
    )


@contextlib.contextmanager
def taken() -> Iterator[threading.Event]:
    """An event that Ctrl-C sets while the block runs.

    pyspark's own handler cancels all jobs of the session, so that a running query would fail. And an exception in the
    middle of a call to the JVM would leave its answer to the next call.
    """
    came = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield came  # Python lets no other thread have signals
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: came.set())
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, before)


EVERY_S = 0.5


def watch(query: StreamingQuery, seconds: float | None = None) -> None:
    """Show how far a query is, in place, until it ends or Ctrl-C (the notebook's stop button) ends the view.

    The query goes on when the view ends. Without a notebook or a terminal it prints a line for each micro-batch.

    Parameters
    ----------
    seconds
        The longest time that the view lasts, so that a notebook whose cells all run gets to the next one; without end
        if not given.

    Raises
    ------
    ImportError
        When tqdm is missing.
    StreamingQueryException
        When the query has failed.
    """
    batches = Batches(query)
    ended = batches.ended()
    counts = RowCounts().after(ended)
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    with taken() as stop, bar(query.name or "query", counts.rows) as drawn:
        active = True
        while True:
            if drawn is not None:
                drawn.show(counts, note(query, counts))
            else:
                for batch in ended:
                    print(line(batch, rows_and_lag(batch)), flush=True)
            if not active or time.monotonic() >= deadline or stop.wait(EVERY_S):
                break
            active = query.isActive
            ended = batches.ended()
            counts = counts.after(ended)
    if active:
        print("the view has ended; the query goes on: query.stop() stops it")
    else:
        query.awaitTermination()  # raises its error


def note(query: StreamingQuery, counts: RowCounts) -> str:
    """The lag, once a micro-batch has ended, and the tasks of the one that runs."""
    running = of_stage(SparkSession.active(), query.runId)
    parts = [f"lag {counts.lag:,}"] if counts.rows else []
    parts += [] if running is None else [f"{running.ended} of {running.all} tasks"]
    return ", ".join(parts)
