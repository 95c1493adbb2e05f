"""A planned batch that Spark has not begun yields to a rebalance, and loses or doubles no record.

Spark writes the end of a batch into its checkpoint before the batch runs, and that cannot be changed any more. So the
partitions that a rebalance takes from the batch are named in the group, where that is not lost either: in the metadata
of the commit of the partition's position.

1. Before the rebalance the start of each of the batch's ranges is committed with the metadata ``without`` the batch.
2. After it the same offsets are committed without ``without``, for partitions that this member has kept. The batch then
   belongs to the new generation, and goes without the other partitions.
3. While the checkpoint ends with that batch, a later start believes this metadata, and not the checkpoint.
4. The next batch reads nothing; its end has the positions of the partitions, so that the checkpoint is right again.

A crash between 1 and 2 leaves out records that are not read yet: the batch has not begun.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace

from spark_kafka_group.driver.committer import Committer
from spark_kafka_group.driver.planner import Batch
from spark_kafka_group.errors import (
    BrokerError,
    BrokerTimeoutError,
    CommitError,
    CommitTimeoutError,
    MembershipLostError,
)
from spark_kafka_group.values.commit_metadata import left_out_of
from spark_kafka_group.values.offsets import GroupOffset, TopicPartition
from spark_kafka_group.wire import Committed, GroupClient

log = logging.getLogger(__name__)


class YieldedBatch:
    """The batch that yielded last, and the partitions that it goes without. `yielded`: whether the planned batch has
    yielded to a rebalance that is not over. `left_out`: positions of partitions that this batch has not read, although
    the checkpoint says so."""

    def __init__(self, committer: Committer, client: GroupClient, query_id: str) -> None:
        self._committer = committer
        self._client = client
        self._query_id = query_id
        self.yielded = False
        self.left_out: dict[TopicPartition, int] = {}
        self._batch = -1  # the batch with which the checkpoint ends, or is about to
        self._noted: set[TopicPartition] = set()  # partitions with ``without`` the planned batch in the group
        self._unsure: set[TopicPartition] = set()  # and partitions that may have it: a request failed

    def yield_to_rebalance(self, batch: Batch, owned: Collection[TopicPartition], generation: int) -> bool:
        """Let `batch` yield; False when that cannot be committed, so that the rebalance has to wait."""
        try:
            yielded = self._note_without(batch, owned, generation)
        except (CommitTimeoutError, BrokerTimeoutError) as error:
            log.info(
                "group %s: the planned batch cannot yield to a rebalance for now: %s", self._committer.group_id, error
            )
            return False
        self.yielded = self.yielded or yielded
        return yielded

    def resumed(self, batch: Batch, kept: Collection[TopicPartition], generation: int) -> Batch | None:
        """`batch` with the partitions that this member has `kept` through the rebalance; None before that is over."""
        starts = {tp: start for tp, start in batch.reads_from.items() if tp in kept}
        gone = batch.reads_from.keys() - starts.keys()
        if not gone <= self._noted:
            return None
        try:
            self._withdraw(batch, starts, generation)
        except (MembershipLostError, CommitError) as error:
            log.info("group %s: the planned batch cannot be resumed yet: %s", self._committer.group_id, error)
            return None
        return self._reduced(batch, gone, generation)

    def given_up(self, batch: Batch, owned: Collection[TopicPartition], generation: int) -> Batch:
        """`batch`, without any partition. Raises CommitTimeoutError, BrokerTimeoutError when this is to be called
        again, CommitError when no partition may be left out, as that cannot be committed."""
        if not self._note_without(batch, owned, generation):
            raise CommitError(
                f"group {self._committer.group_id}: batch {batch.end.batch} must yield to a rebalance, and the commit "
                f"that records this failed. Start the query again: it reads this batch first"
            )
        return self._reduced(batch, batch.reads_from.keys(), batch.generation)

    def begins(self, batch: Batch) -> Batch:
        """`batch` as it will be read, once a ``without`` in the group is withdrawn. Raises CommitError, BrokerError."""
        unsure = {tp: at for tp, at in batch.reads_from.items() if tp in self._unsure}
        try:
            self._withdraw(batch, unsure, batch.generation)
        except MembershipLostError:
            # Commits under its generation are refused from now on, so the group's metadata of now hold.
            left_out = self.learn(self._client.committed(unsure), batch.end)
            return self._reduced(batch, left_out & unsure.keys(), batch.generation)
        return batch

    def dropped(self, batch: Batch) -> Batch:
        """`batch` without all that it would commit; without metadata where the sink commits: the group is right."""
        return self._reduced(batch, batch.ends.keys(), batch.generation)

    def learn(
        self, committed: Mapping[TopicPartition, Committed], end: GroupOffset, *planned: int
    ) -> set[TopicPartition]:
        """Remember, and return, the partitions that the batch up to `end` has not read, by metadata in the group.

        Or those that the batch `planned`, which is to be planned again, has not read: it begins at the group's offset,
        not at `end`. Metadata about other batches is not true of this checkpoint: an older one was restored. Nor is
        metadata from before `end` was planned: then it is another batch of that number.
        """
        self.at(end.batch)
        left = {tp: left_out_of(group.metadata, self._query_id, end.generation) for tp, group in committed.items()}
        found = {tp: committed[tp].offset for tp, named in left.items() if named in (end.batch, *planned)}
        self.left_out |= found
        return set(found)

    def at(self, batch: int) -> None:
        """The checkpoint ends with this batch: it has the positions that earlier ones have left out."""
        if batch != self._batch:
            self._batch, self.left_out = batch, {}
            self._noted, self._unsure = set(), set()

    def _note_without(self, batch: Batch, owned: Collection[TopicPartition], generation: int) -> bool:
        starts = {tp: start for tp, start in batch.reads_from.items() if tp not in self._noted}
        if not starts.keys() <= set(owned):
            return False  # their owners of now may have read on
        self._unsure |= starts.keys()
        try:
            self._commit(batch, starts, generation, batch.end.batch)
        except (CommitTimeoutError, BrokerTimeoutError):
            raise
        except (MembershipLostError, CommitError, BrokerError) as error:
            log.info("group %s: the planned batch cannot yield to a rebalance: %s", self._committer.group_id, error)
            return False
        self._unsure -= starts.keys()
        self._noted |= starts.keys()
        return True

    def _withdraw(self, batch: Batch, starts: Mapping[TopicPartition, int], generation: int) -> None:
        self._noted -= starts.keys()
        self._unsure |= starts.keys()
        self._commit(batch, starts, generation, None)
        self._unsure -= starts.keys()

    def _commit(self, batch: Batch, starts: Mapping[TopicPartition, int], generation: int, without: int | None) -> None:
        newer = self._committer.correct(starts, generation, batch.end.batch - 1, without)
        if newer:
            raise CommitError(f"the group has newer offsets of {' '.join(map(str, sorted(newer)))}")

    def _reduced(self, batch: Batch, gone: Collection[TopicPartition], generation: int) -> Batch:
        self.yielded = False
        self._noted, self._unsure = set(), set()
        self.at(batch.end.batch)
        self.left_out |= {tp: start for tp, start in batch.reads_from.items() if tp in gone}
        if gone:
            log.info(
                "group %s: batch %d yielded to a rebalance, and goes on without %s",
                self._committer.group_id, batch.end.batch, " ".join(map(str, sorted(gone))),
            )  # fmt: skip
        return replace(batch, generation=generation, left_out=batch.left_out | frozenset(gone))
