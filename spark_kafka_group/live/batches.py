"""The micro-batches of a query, each once."""

from __future__ import annotations

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from spark_kafka_group.live.row_counts import generation_of, lag_of


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
