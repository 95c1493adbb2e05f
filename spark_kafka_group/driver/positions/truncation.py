"""Logs that lost their ends, and have grown again since or not (KIP-320).

A position is kept with a leader epoch: that of a leader whose log had every record before it. The lookup of the log's
end gives the epoch of the leader now. While it is the same, so is the log. A later leader may have been elected without
the log's last records. It knows where the records of the kept epoch end in its own log. A position beyond that end is
beyond what is left of the old log, and reading goes on where the two logs diverge.

The kept epoch may be later than that of the record before the position. No record before the position has a later one,
so the end of the kept epoch is at or after the position, unless records are gone.

Where records are gone that this query has not read, it stops, or it logs and counts them and goes on, as failOnDataLoss
says. The conditions, and their names after ``KAFKA_DATA_LOSS.``, are those of Spark's kafka source.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from spark_kafka_group.driver.positions.lookup import looked_up_until
from spark_kafka_group.driver.reporting.query_metrics import Metrics
from spark_kafka_group.errors import NEW_CHECKPOINT, DataLossError
from spark_kafka_group.values.commit_metadata import writer_of
from spark_kafka_group.values.offsets import GroupOffset, TopicPartition
from spark_kafka_group.wire import Committed, EpochAsked, LogClient

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Look:
    """Ends of logs, and whether the positions from which they are read on are still in them."""

    ends: dict[TopicPartition, int]  # of partitions that exist
    # Of leaders in whose logs the positions are, or will be when they have been moved
    epochs: dict[TopicPartition, int] = field(default_factory=dict)
    # Where logs diverge from those that the positions were in, of positions beyond that
    diverged: dict[TopicPartition, int] = field(default_factory=dict)
    # Partitions whose logs end before their positions, where brokers do not know at which offset they diverge
    behind: frozenset[TopicPartition] = frozenset()
    # Partitions whose leaders are of earlier epochs than their positions: the log is another one
    replaced: frozenset[TopicPartition] = frozenset()
    unsettled: frozenset[TopicPartition] = frozenset()  # partitions whose leaders changed during the look

    @property
    def suspect(self) -> list[TopicPartition]:
        """Partitions whose positions are, or seem to be, in other logs."""
        return sorted(self.behind | self.replaced | self.diverged.keys())

    @property
    def doubtful(self) -> bool:
        """Whether to look again: a leader just elected may not know how far its log is committed."""
        return bool(self.behind or self.replaced or self.unsettled)


def look(
    client: LogClient,
    positions: Mapping[TopicPartition, int],
    known: Mapping[TopicPartition, int],
    led_only: bool = False,
) -> Look:
    """Look up the ends of logs; asks for those of leader epochs only where one has changed since it was `known`.
    `led_only`: leave out partitions that have no leader. Raises BrokerError."""
    ends = client.end_offsets(positions, led_only)
    now = client.leader_epochs(ends)
    if now.items() <= known.items() and all(end >= positions[tp] for tp, end in ends.items()):
        return Look(ends)  # as nearly always, and there may be many partitions
    asked = {tp: EpochAsked(known[tp], now[tp]) for tp in now if tp in known and known[tp] < now[tp]}
    return judged(positions, ends, now, known, client.epoch_ends(asked) if asked else {})


def settled(client: LogClient, positions: Mapping[TopicPartition, int], known: Mapping[TopicPartition, int]) -> Look:
    """As :func:`look`, once elections are over; leaders that seem to be of before are doubted. Raises BrokerError."""

    def another() -> Look:
        looked = look(client, positions, known)
        if looked.replaced or looked.unsettled:
            client.existing(positions, of_any=True)  # which asks for their leaders, too
        return looked

    return looked_up_until(lambda looked: not (looked.replaced or looked.unsettled), another)


def judged(
    positions: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    now: Mapping[TopicPartition, int],
    known: Mapping[TopicPartition, int],
    epoch_ends: Mapping[TopicPartition, int | None],
) -> Look:
    """Judge `positions` by these ends. `now`, `known`: epochs of the leaders that answered, and of those in whose logs
    the positions were. `epoch_ends`: where the `known` epochs end in the logs of leaders of later ones; None where they
    do not know."""
    replaced = {tp for tp in now if known.get(tp, now[tp]) > now[tp]}
    unanswered = {tp for tp in now if known.get(tp, now[tp]) < now[tp]} - epoch_ends.keys()
    answered = {tp: end for tp, end in epoch_ends.items() if end is not None}
    return Look(
        ends=_without(ends, unanswered),
        epochs=_without(now, unanswered),
        diverged=_before(answered, positions),
        behind=frozenset(_before(ends, positions).keys() - answered.keys() - replaced - unanswered),
        replaced=frozenset(replaced),
        unsettled=frozenset(unanswered),
    )


def _without(numbers: Mapping[TopicPartition, int], tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    return {tp: number for tp, number in numbers.items() if tp not in tps}


def _before(ends: Mapping[TopicPartition, int], positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Those of `ends` that are before the partition's position."""
    return {tp: end for tp, end in ends.items() if end < positions[tp]}


def epoch_of(group: Committed) -> int:
    """The leader epoch of this package's commits, else -1: some clients commit 0, or the epoch where they started, also
    when they have read on, by which a position would seem to be lost."""
    return -1 if writer_of(group.metadata) is None else group.leader_epoch


class LeaderEpochs:
    """Leader epochs under which a query's positions are known to be in the logs."""

    def __init__(self, first: GroupOffset) -> None:
        self.known = dict(first.epochs)

    def select(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Those that are known."""
        return {tp: self.known[tp] for tp in tps if tp in self.known}

    def taken(
        self,
        positions: Mapping[TopicPartition, int],
        checkpoint: GroupOffset,
        committed: Mapping[TopicPartition, Committed],
        recreated: Callable[[TopicPartition], bool],
    ) -> None:
        """Set the epochs of new positions, which are from the checkpoint, from the group, or from neither. Where both
        agree, the later epoch holds: the member that committed under it was at this position in that log. `recreated`:
        whether the partition's topic was recreated: the checkpoint's epoch is about another log."""
        kept = checkpoint.left | checkpoint.positions
        for tp, position in positions.items():
            epochs = [-1]
            if kept.get(tp) == position and not recreated(tp):
                epochs.append(checkpoint.epochs.get(tp, -1))
            if tp in committed and committed[tp].offset == position:
                epochs.append(epoch_of(committed[tp]))
            self.known.pop(tp, None)
            if max(epochs) >= 0:
                self.known[tp] = max(epochs)


def explained(looked: Look, tp: TopicPartition, position: int, known: Mapping[TopicPartition, int]) -> tuple[str, int]:
    """The text about the log of a suspect partition, and where reading goes on."""
    end, epoch = looked.ends[tp], looked.epochs.get(tp)
    if tp in looked.diverged:
        at = looked.diverged[tp]
        return (
            f"{tp}: records up to offset {position} were read under leader epoch {known[tp]}, and the log has lost "
            f"them from offset {at} on (a broker without replicas lost its power, or an unclean leader election): "
            f"under epoch {epoch} other records take offset {at} and later ones, and the log ends at {end}"
        ), at
    if tp in looked.replaced:
        return (
            f"{tp}: records up to offset {position} were read under leader epoch {known[tp]}, and the leader is of "
            f"epoch {epoch} now: the log, which ends at {end}, is another one"
        ), min(position, end)
    return f"{tp}: offset {position}: the log ends at {end}: its end was lost", end


STOP_OR_GO_ON = (
    f"Set failOnDataLoss=false to go on with the records that are left; or start with {NEW_CHECKPOINT}, or stop the "
    f"query and move the group's offset with kafka-consumer-groups --reset-offsets"
)


class DataLoss:
    """Option failOnDataLoss."""

    def __init__(self, fail: bool, metrics: Metrics) -> None:
        self.fail = fail
        self._metrics = metrics

    def report(self, condition: str, problem: str, lost: int = 0) -> None:
        """Stop the query, or log and count the loss. `condition`: Spark's name for it. `lost`: how many offsets; 0
        where that cannot be known. Raises DataLossError when failOnDataLoss is true."""
        if self.fail:
            raise DataLossError(condition, f"{problem}. {STOP_OR_GO_ON}")
        log.warning("KAFKA_DATA_LOSS.%s: %s; going on, as failOnDataLoss is false", condition, problem)
        self._metrics.data_losses += 1
        self._metrics.offsets_lost += lost
