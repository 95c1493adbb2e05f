"""A bar for a batch read, whose number of records is known before it starts."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from spark_kafka_group.live.bar import Bar, RowCounts, bar, of_stage

EVERY_S = 0.5


@contextlib.contextmanager
def bar_of_batch(spark: SparkSession, title: str, records: int) -> Iterator[None]:
    """Show how many of the records have been read while the block runs; nothing without terminal or notebook.

    Spark counts tasks, so the bar estimates: the share of a stage's tasks that have ended, of all records.

    Parameters
    ----------
    records
        Of the whole read.

    Raises
    ------
    ImportError
        When tqdm is missing.
    """
    with bar(title) as drawn:
        if drawn is None:
            yield
            return
        drawn.show(RowCounts(0, records), "")
        with _drawing(spark, drawn, records):
            yield
        drawn.show(RowCounts(records, 0), "" if records else "no new records")


@contextlib.contextmanager
def _drawing(spark: SparkSession, drawn: Bar, records: int) -> Iterator[None]:
    ended = threading.Event()

    def draw() -> None:
        most = 0
        with contextlib.suppress(Py4JError, OSError):  # the session was stopped
            while not ended.wait(EVERY_S):
                stage = of_stage(spark)
                if stage is not None:
                    most = max(most, records * stage.ended // stage.all)
                    drawn.show(RowCounts(most, records - most), f"{stage.ended} of {stage.all} tasks")

    thread = threading.Thread(target=draw, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
