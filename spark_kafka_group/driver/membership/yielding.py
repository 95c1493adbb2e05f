"""A planned batch that Spark has not begun gives way to a rebalance, without losing or doubling what it was to read.

Spark keeps the end of a batch in its checkpoint before it runs, and nothing can be changed there any more. What a
rebalance takes from such a batch is therefore noted where it is not lost either: in the group, in the note of the
commit that says where the partition stands.

1. Before the rebalance the start of each of its ranges is committed ``without`` the batch.
2. After it, for what this member has kept, the same offsets are committed without that word, and the batch belongs
   to the new generation. What it has not kept is left out.
3. While the checkpoint ends with that batch, a later start that finds the word believes it, and not the checkpoint.
4. The next batch reads nothing, and says where the partitions are: from then on the checkpoint is right.

A crash between 1 and 2 leaves out what nobody has read yet: it has not begun.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace

from spark_kafka_group.commit_metadata import left_out_of
from spark_kafka_group.driver.committer import Batch, Committer
from spark_kafka_group.errors import (
    BrokerError,
    BrokerTimeoutError,
    CommitError,
    CommitTimeoutError,
    MembershipLostError,
)
from spark_kafka_group.offsets import TopicPartition
from spark_kafka_group.wire import Committed, GroupClient

log = logging.getLogger(__name__)


class YieldedBatch:
    """What became of the batch that gave way last.

    Attributes
    ----------
    yielded
        Whether the planned batch has given way to a rebalance that is not over.
    left_out
        Where partitions stand of which the checkpoint says that this batch has read them, and it has not.
    """

    def __init__(self, committer: Committer, client: GroupClient, reader: str) -> None:
        self._committer = committer
        self._client = client
        self._reader = reader
        self.yielded = False
        self.left_out: dict[TopicPartition, int] = {}
        self._batch = -1  # with which the checkpoint ends, or is about to
        self._told: set[TopicPartition] = set()  # partitions of the planned batch of which the group has the word
        self._unsure: set[TopicPartition] = set()  # and of which it may have it: a request failed

    def yield_to_rebalance(self, batch: Batch, owned: Collection[TopicPartition], generation: int) -> bool:
        """Let a rebalance pass `batch`; False when the group cannot be told, so that the rebalance has to wait."""
        try:
            told = self._tell(batch, owned, generation)
        except (CommitTimeoutError, BrokerTimeoutError) as error:
            log.info("group %s: the planned batch cannot give way for now: %s", self._committer.group_id, error)
            return False
        self.yielded = self.yielded or told
        return told

    def resumed(self, batch: Batch, kept: Collection[TopicPartition], generation: int) -> Batch | None:
        """`batch` after the rebalance, all through which this member has owned `kept`; None when it is not over yet."""
        starts = {tp: start for tp, start in batch.reads_from.items() if tp in kept}
        gone = batch.reads_from.keys() - starts.keys()
        if not gone <= self._told:
            return None
        try:
            self._take_back(batch, starts, generation)
        except (MembershipLostError, CommitError) as error:
            log.info("group %s: the planned batch cannot go on yet: %s", self._committer.group_id, error)
            return None
        return self._without(batch, gone, generation)

    def given_up(self, batch: Batch, owned: Collection[TopicPartition], generation: int) -> Batch:
        """`batch`, with nothing left in it.

        Raises
        ------
        CommitTimeoutError, BrokerTimeoutError
            When brokers do not answer: this is to be called again.
        CommitError
            When the group cannot be told: nothing may be left out then.
        """
        if not self._tell(batch, owned, generation):
            raise CommitError(
                f"group {self._committer.group_id}: batch {batch.end.batch} has to give way to a rebalance, and the "
                f"group could not be told so. Start the query again: it reads this batch first"
            )
        return self._without(batch, batch.reads_from.keys(), batch.generation)

    def begins(self, batch: Batch) -> Batch:
        """`batch` as it is going to be read: the group must not say otherwise.

        Raises
        ------
        CommitError, BrokerError
        """
        unsure = {tp: at for tp, at in batch.reads_from.items() if tp in self._unsure}
        try:
            self._take_back(batch, unsure, batch.generation)
        except MembershipLostError:
            # Nothing is committed under its generation any more, so what the group says now holds.
            left_out = self.learn(self._client.committed(unsure), batch.end.batch)
            return self._without(batch, left_out & unsure.keys(), batch.generation)
        return batch

    def learn(self, committed: Mapping[TopicPartition, Committed], batch: int, *planned: int) -> set[TopicPartition]:
        """Take note of, and return, the partitions of which the group says that `batch` has not read them.

        Or one that was `planned` and is to be planned again: it was to begin where the group says, whatever the end of
        `batch` is. Words about other batches are no longer, or not yet, true of this checkpoint, which was rolled back.
        """
        self.at(batch)
        notes = {tp: left_out_of(group.metadata, self._reader) for tp, group in committed.items()}
        found = {tp: committed[tp].offset for tp, named in notes.items() if named in (batch, *planned)}
        self.left_out |= found
        return set(found)

    def at(self, batch: int) -> None:
        """The checkpoint ends with this batch: it knows what earlier ones have left out."""
        if batch != self._batch:
            self._batch, self.left_out = batch, {}
            self._told, self._unsure = set(), set()

    def _tell(self, batch: Batch, owned: Collection[TopicPartition], generation: int) -> bool:
        starts = {tp: start for tp, start in batch.reads_from.items() if tp not in self._told}
        if not starts.keys() <= set(owned):
            return False  # whoever has them now may have read on
        self._unsure |= starts.keys()
        try:
            self._say(batch, starts, generation, batch.end.batch)
        except (CommitTimeoutError, BrokerTimeoutError):
            raise
        except (MembershipLostError, CommitError, BrokerError) as error:
            log.info("group %s: the planned batch cannot give way: %s", self._committer.group_id, error)
            return False
        self._unsure -= starts.keys()
        self._told |= starts.keys()
        return True

    def _take_back(self, batch: Batch, starts: Mapping[TopicPartition, int], generation: int) -> None:
        self._told -= starts.keys()
        self._unsure |= starts.keys()
        self._say(batch, starts, generation, None)
        self._unsure -= starts.keys()

    def _say(self, batch: Batch, starts: Mapping[TopicPartition, int], generation: int, without: int | None) -> None:
        newer = self._committer.correct(starts, generation, batch.end.batch - 1, without)
        if newer:
            raise CommitError(f"the group has newer offsets of {' '.join(map(str, sorted(newer)))}")

    def _without(self, batch: Batch, gone: Collection[TopicPartition], generation: int) -> Batch:
        self.yielded = False
        self._told, self._unsure = set(), set()
        self.at(batch.end.batch)
        self.left_out |= {tp: start for tp, start in batch.reads_from.items() if tp in gone}
        if gone:
            log.info(
                "group %s: batch %d gave way to a rebalance, and goes on without %s",
                self._committer.group_id, batch.end.batch, " ".join(map(str, sorted(gone))),
            )  # fmt: skip
        return replace(batch, generation=generation, left_out=batch.left_out | frozenset(gone))
