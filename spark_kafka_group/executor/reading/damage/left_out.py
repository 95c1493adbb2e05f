"""Offsets that a task leaves out, because their record batch cannot be read."""

from __future__ import annotations

from dataclasses import dataclass

from spark_kafka_group.errors import CorruptRecordError
from spark_kafka_group.values.offsets import TopicPartition


@dataclass(frozen=True)
class LeftOut:
    """Offsets of one partition that were not read, ``first <= offset < following``, and why.

    Attributes
    ----------
    raw
        The bytes of their record batch, as far as the task has them and knows its end.
    """

    tp: TopicPartition
    first: int
    following: int
    error: CorruptRecordError
    raw: bytes

    def __str__(self) -> str:
        if self.following <= self.first:
            return f"{self.tp}: {len(self.raw)} bytes before offset {self.following}"
        return f"{self.tp}: offsets {self.first} to {self.following - 1}"
