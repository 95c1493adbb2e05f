"""Reads while they run: a bar in a terminal or a notebook, lines elsewhere."""

from spark_kafka_group.live.bar import RowCounts, bar_of_batch
from spark_kafka_group.live.watch import watch

__all__ = ["RowCounts", "bar_of_batch", "watch"]
