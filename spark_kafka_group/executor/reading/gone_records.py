"""Records of a task that are gone: the task fails, or reads on behind them, as failOnDataLoss says."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from spark_kafka_group.errors import NEW_CHECKPOINT, OffsetOutOfRangeError
from spark_kafka_group.executor.reading.stall import Stall
from spark_kafka_group.executor.writing.elections import Elected
from spark_kafka_group.values.offsets import TopicPartition

log = logging.getLogger(__name__)

BELIEVED_AFTER_S = 5.0
"""A partition that is missing for this long is gone. If reading may stall for less than that, the shorter time
counts."""


class GoneRecords:
    """Decides which records are gone, and moves positions and ends of ranges past them.

    Each method that finds records gone raises an OffsetOutOfRangeError, or warns if failOnDataLoss is false.

    `positions`, `ends`: the caller's next offset and its end of each range. They change here; a range without records
        left has no position.
    `stall`: the time without records. It starts again behind a gap.
    """

    def __init__(
        self,
        positions: dict[TopicPartition, int],
        ends: dict[TopicPartition, int],
        fail_on_data_loss: bool,
        stall: Stall,
        clock: Callable[[], float],
    ) -> None:
        self._positions = positions
        self._ends = ends
        self._fail_on_data_loss = fail_on_data_loss
        self._stall = stall
        self._clock = clock
        self._missing_since: dict[TopicPartition, float] = {}  # when a broker first lacked the partition
        self._ends_since: dict[TopicPartition, float] = {}  # when a leader first said that its log ends before a range

    def give_up_missing(self, missing: Collection[TopicPartition], made_again: Collection[str]) -> bool:
        """Give up the partitions that brokers have not known for a while: one that just started may not know them yet.
        True if some are missing, but not for long enough. `made_again` has topics that are there under another id."""
        now = self._clock()
        self._missing_since = {tp: self._missing_since.get(tp, now) for tp in missing}
        believed_after_s = min(BELIEVED_AFTER_S, self._stall.limit_s)
        gone = {tp for tp in missing if now - self._missing_since[tp] >= believed_after_s}
        for tp in sorted(gone):
            again = f"topic {tp.topic} was deleted and made again, and its records are others"
            problem = again if tp.topic in made_again else "the cluster does not have this partition any more"
            self.skip(tp, self._ends[tp], problem)
        return set(missing) != gone

    def ends_for_good(self, tp: TopicPartition, high_watermark: int) -> bool:
        """Whether a leader has said for a while that its log ends before the position: a leader that was just elected
        learns later how far its log is committed (KIP-207), and brokers may have been away."""
        if high_watermark > self._positions[tp]:
            self._ends_since.pop(tp, None)
            return False
        since = self._ends_since.setdefault(tp, self._clock())
        believed_after_s = min(BELIEVED_AFTER_S, self._stall.limit_s / 2)
        return self._stall.is_over_limit(tp) and self._clock() - since >= believed_after_s

    def look_at_bounds(self, tp: TopicPartition, first: int, last: int) -> bool:
        """Read on at the log's first offset if the position is not in it; True if it holds the position again."""
        position = self._positions[tp]
        if first <= position < last:
            return True
        self.skip(tp, first if position < first else self._ends[tp], f"the log holds offsets {first} to {last}")
        return False

    def look_at_leader(self, elected: Elected) -> None:
        """Skip the range if the log is another one; end it where a later leader has lost its records."""
        tp = elected.tp
        if elected.replaced:
            problem = (
                f"the records were planned under leader epoch {elected.planned}, and the leader is of epoch "
                f"{elected.current}: the log is another one"
            )
            self.skip(tp, self._ends[tp], problem)
        elif elected.later and elected.end is not None and elected.end < self._ends[tp]:
            self._end_at(tp, elected.end, elected.planned)

    def forget(self, tp: TopicPartition) -> None:
        """Forget the earlier answers about this partition, as no leader answers now."""
        self._missing_since.pop(tp, None)
        self._ends_since.pop(tp, None)

    def skip(self, tp: TopicPartition, go_on_at: int, problem: str) -> None:
        """The records before `go_on_at` are gone. Raises OffsetOutOfRangeError unless failOnDataLoss is false."""
        position, end = self._positions[tp], self._ends[tp]
        go_on_at = min(go_on_at, end)
        cause = "retention, or the topic was deleted"
        self._report(tp, "COULD_NOT_READ_OFFSET_RANGE", problem, cause, position, go_on_at)
        if go_on_at < end:
            self._positions[tp] = go_on_at
        else:
            del self._positions[tp]
        self._stall.moved()  # the remaining records have not been waited for

    def _end_at(self, tp: TopicPartition, end: int, planned_epoch: int) -> None:
        """The records from `end` on are gone. Others at these offsets are for the next batch: the driver goes back."""
        problem = (
            f"the log has lost the records of leader epoch {planned_epoch} from offset {end} on, and may have others "
            f"there now"
        )
        cause = "a broker without replicas lost its power, or an unclean leader election"
        self._report(tp, "PARTITION_OFFSET_CHANGED", problem, cause, max(self._positions[tp], end), self._ends[tp])
        if self._positions[tp] < end:
            self._ends[tp] = end
        else:
            del self._positions[tp]

    def _report(self, tp: TopicPartition, condition: str, problem: str, cause: str, first: int, after: int) -> None:
        """The records from `first` on and before `after` are gone: an error, or a warning."""
        if self._fail_on_data_loss:
            raise OffsetOutOfRangeError(
                tp.topic, tp.partition, self._positions[tp],
                f"[KAFKA_DATA_LOSS.{condition}] {problem}, so records of this batch are gone ({cause}). Set "
                f"failOnDataLoss=false to go on with the records that are left; or start with {NEW_CHECKPOINT}: it "
                f"goes on at the group's offset, which kafka-consumer-groups --reset-offsets moves",
            )  # fmt: skip
        log.warning(
            "KAFKA_DATA_LOSS.%s: %s: %s; skipping %d to %d, as failOnDataLoss is false",
            condition, tp, problem, first, after - 1,
        )  # fmt: skip
