"""Ends of batches that Spark keeps in its checkpoint: all, or, with asynchronous progress tracking, some."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from spark_kafka_group.values.offsets import GroupOffset, TopicPartition

log = logging.getLogger(__name__)


class CheckpointedEnds:
    """Whether the end that a batch starts at is certain to be in Spark's checkpoint.

    Spark calls ``commit(start)`` while it builds the batch from `start`, after it has written that batch's end down.
    With asynchronous progress tracking it writes only some ends down, and that call is missing, or comes late:

    1. batch 5 is planned and its end is written, 2. batches 6 and 7 run and are left out, 3. batch 8 is planned, its
    end is written, and Spark dies, 4. at the restart batch 8 is to begin at the end of 5.

    Rows of 6 and 7 are in the sink: Spark plans a batch when the one before it has succeeded. So batch 8 is read again
    as it was, and has to keep its own starts, as the end of 7 is nowhere.
    """

    def __init__(self) -> None:
        self._unconfirmed: GroupOffset | None = None
        self._gaps = False

    def planned(self, start: GroupOffset) -> None:
        """Note that a batch from `start` has been planned."""
        self._unconfirmed = start

    def committed(self, end: GroupOffset) -> None:
        """Note that Spark has called ``commit(end)``."""
        if end == self._unconfirmed:
            self._unconfirmed = None

    def starts(self, start: GroupOffset, begin: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Those of `begin` that the end of a batch after `start` has to keep, as they may not be in `start`."""
        if self._unconfirmed is not None:
            if self._unconfirmed.positions and not self._gaps:
                log.info(
                    "Spark keeps only some ends of batches (asyncProgressTrackingEnabled): each end now has its starts"
                )
                self._gaps = True
            return dict(begin)
        if self._gaps:
            return dict(begin)
        return {tp: offset for tp, offset in begin.items() if start.positions.get(tp) != offset}
