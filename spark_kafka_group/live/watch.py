"""``watch``: a query in a notebook's cell, or in a terminal."""

from __future__ import annotations

import math
import time

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_kafka_group.live import interrupt, tasks
from spark_kafka_group.live.bar import bar
from spark_kafka_group.live.batches import Batches, line, rows_and_lag
from spark_kafka_group.live.row_counts import RowCounts

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
    with interrupt.taken() as stop, bar(query.name or "query", counts.rows) as drawn:
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
    running = tasks.of_stage(SparkSession.active(), query.runId)
    parts = [f"lag {counts.lag:,}"] if counts.rows else []
    parts += [] if running is None else [f"{running.ended} of {running.all} tasks"]
    return ", ".join(parts)
