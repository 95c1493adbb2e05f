"""How far a query is, by the progress of its micro-batches."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress

from spark_kafka_group.values.offsets import GROUP_KEY


@dataclass(frozen=True)
class RowCounts:
    """How far a query is.

    Attributes
    ----------
    rows
        Rows of the micro-batches that have ended.
    lag
        Records between the end of the last one and the ends of the logs, as they were when it was planned.
    """

    rows: int = 0
    lag: int = 0

    @property
    def total(self) -> int:
        """Rows when the query has caught up."""
        return self.rows + self.lag

    def after(self, batches: Iterable[StreamingQueryProgress]) -> RowCounts:
        """As it is after these micro-batches, too."""
        rows, lag = self.rows, self.lag
        for batch in batches:
            rows += batch.numInputRows
            lag = lag_of(batch)
        return RowCounts(rows, lag)


def lag_of(batch: StreamingQueryProgress) -> int:
    """Records behind the ends of the logs when the batch was planned; 0 for a replayed batch, which has not looked."""
    return sum(_behind(source.endOffset, source.latestOffset) for source in batch.sources)


def generation_of(batch: StreamingQueryProgress) -> int | None:
    """The generation that planned the batch, of its first groupkafka source; None if it has none."""
    ends = (_json(source.endOffset) for source in batch.sources)
    return next((end[GROUP_KEY]["generation"] for end in ends if GROUP_KEY in end), None)


def _behind(end_offset: str, latest_offset: str) -> int:
    end, latest = _json(end_offset), _json(latest_offset)
    if GROUP_KEY not in end:
        return 0
    return sum(
        max(0, offset - end[topic][partition])
        for topic, partitions in latest.items()
        if topic != GROUP_KEY
        for partition, offset in partitions.items()
        if partition in end.get(topic, {})
    )


def _json(offset: str) -> dict[str, Any]:
    """An offset of any source; empty if it is no object, as that of Spark's rate source."""
    try:
        value = json.loads(offset or "null")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
