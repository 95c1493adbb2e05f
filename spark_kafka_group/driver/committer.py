"""The commit of a batch, as soon as it is known to have succeeded, and of positions that the group lacks."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Collection, Iterator, Mapping

from spark_kafka_group.driver.hooks import Hooks
from spark_kafka_group.driver.planner import Batch
from spark_kafka_group.driver.positions.truncation import LeaderEpochs
from spark_kafka_group.driver.reporting.events import EventLog
from spark_kafka_group.driver.reporting.query_metrics import Metrics
from spark_kafka_group.errors import (
    BrokerError,
    BrokerTimeoutError,
    CommitError,
    CommitTimeoutError,
    GroupKafkaError,
    MembershipLostError,
)
from spark_kafka_group.values.commit_metadata import (
    adopting_metadata,
    commit_metadata,
    correcting_metadata,
    is_of_batch,
    is_signed_up_to,
)
from spark_kafka_group.values.offsets import GroupOffset, TopicPartition
from spark_kafka_group.wire import Committed, GroupClient

log = logging.getLogger(__name__)

DELETED = "UNKNOWN_TOPIC_OR_PARTITION"
"""The coordinator's error for a topic that was deleted, or that it does not know yet."""

METADATA_WITHIN_MS = 2_000.0  # how long the metadata of the first commit is looked for, before the next commit looks


class Committer:
    """Holds the one batch that is planned and not yet known to have succeeded, and the group's offsets.

    Spark runs micro-batches one after the other, so there is never a second.

    `transactional_id`: of the sink that commits the offsets of batches in its transactions; None where this commits
        them.
    `looked_for_metadata`, `keeps_metadata`: whether the metadata of a commit of this process was looked for in the
        group, and was there.
    """

    def __init__(
        self,
        group_id: str,
        query_id: str,
        client: GroupClient,
        hooks: Hooks,
        events: EventLog,
        metrics: Metrics,
        epochs: LeaderEpochs,
        transactional_id: str | None = None,
    ) -> None:
        self.group_id = group_id
        self._query_id = query_id
        self._client = client
        self._hooks = hooks
        self._events = events
        self._metrics = metrics
        self._epochs = epochs
        self._transactional_id = transactional_id
        self._planned: Batch | None = None
        self.unanswered = False  # the planned batch has succeeded, and its commit got no answer
        self.keeps_metadata = True
        self.looked_for_metadata = False
        self.in_group: dict[TopicPartition, int] = {}  # committed offsets as last written, or when positions were taken

    @property
    def planned(self) -> Batch | None:
        return self._planned

    def plan(self, batch: Batch | None) -> None:
        """Hold a batch that Spark is about to run; None when it is not going to run the one held."""
        self._planned = batch
        self.unanswered = False

    @contextlib.contextmanager
    def agreed(self, tps: Collection[TopicPartition], committed: Mapping[TopicPartition, Committed]) -> Iterator[None]:
        """Positions of `tps` are taken in knowledge of the group's commits for them. An error in the block makes that
        void: when positions are taken once more, commits of others are news again."""
        before = dict(self.in_group)
        for tp in tps:
            self.in_group.pop(tp, None)
        self.in_group |= {tp: group.offset for tp, group in committed.items()}
        try:
            yield
        except GroupKafkaError:
            self.in_group = before
            raise

    def correct(
        self, offsets: Mapping[TopicPartition, int], generation: int, batch: int, without: int | None = None
    ) -> set[TopicPartition]:
        """Commit where this query stands, which is not the end of a batch. Without offsets nothing is sent.

        1. A batch succeeds, and the listener commits it from the user's process.
        2. This process, which does not know that yet, would commit the batch's start, and set the group back.
        3. So the group is asked right before. An offset that this query does not know is newer than its position.

        `without`: a planned batch that was to read on from there, and that may have to go without.
        Returns partitions with a newer commit. They are left as they are.
        Raises MembershipLostError, FencedError, CommitError, BrokerError.
        """
        if not offsets:
            return set()
        committed = self._client.committed(offsets)
        newer = self._newer(offsets, committed, generation)
        by_metadata: dict[str, dict[TopicPartition, int]] = {}
        for tp, offset in offsets.items():
            group = committed.get(tp)
            stays = group.metadata if group is not None and group.offset == offset else None
            metadata = correcting_metadata(self._query_id, generation, batch, without, stays)
            if tp not in newer:
                by_metadata.setdefault(metadata, {})[tp] = offset
        for metadata, wrong in by_metadata.items():
            self._send(wrong, generation, metadata)
            self._record(wrong, generation)
        return set(newer)

    def _newer(
        self, offsets: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, Committed], generation: int
    ) -> dict[TopicPartition, int]:
        """The group's offsets that are neither those known nor those that are to be committed."""
        newer = {
            tp: group.offset
            for tp, group in committed.items()
            if group.offset not in (self.in_group.get(tp), offsets[tp])
        }
        if newer:
            log.info(
                "group %s: generation %d: not committed, as another commit came first: %s",
                self.group_id, generation, " ".join(f"{tp}={offset}" for tp, offset in sorted(newer.items())),
            )  # fmt: skip
        return newer

    def adopt(self, others: Mapping[TopicPartition, Committed], generation: int, batch: int) -> set[TopicPartition]:
        """Put this query's metadata on offsets that others wrote, and from which it goes on after `batch`.

        By the metadata a later start distinguishes an offset from which this query has gone on, and whose batch it has
        not committed, from an offset that another program wrote after that batch.

        1. Another program commits an offset, and this query looks it up.
        2. The other program commits the next one. Without membership nothing keeps it from that.
        3. This query commits the former with its metadata, which would set the group back. So it looks up once more
           right before. Kafka has no commit that compares: a commit in the moment in between is overwritten.

        Returns partitions that others have committed since. They are left as they are.
        Raises MembershipLostError, FencedError, CommitError, BrokerError.
        """
        if not others:
            return set()
        now = self._client.committed(others) if generation < 0 else others
        newer = {tp for tp, group in others.items() if now.get(tp) != group}
        by_metadata: dict[str, dict[TopicPartition, int]] = {}
        for tp in others.keys() - newer:
            group = others[tp]
            metadata = adopting_metadata(self._query_id, generation, batch, group.metadata)
            by_metadata.setdefault(metadata, {})[tp] = group.offset
        for metadata, offsets in by_metadata.items():
            self._record(self._sent(offsets, generation, metadata), generation)
        return newer

    def try_metadata(self, others: Mapping[TopicPartition, Committed], generation: int, batch: int) -> None:
        """Put this query's metadata on offsets without any, as :meth:`adopt`, to see whether brokers keep it; the query
        need not go on from them. Raises MembershipLostError, FencedError, CommitError, BrokerError."""
        before = dict(self.in_group)
        try:
            self.adopt(others, generation, batch)
        finally:
            self.in_group = before

    def _sent(
        self, offsets: Mapping[TopicPartition, int], generation: int, metadata: str
    ) -> Mapping[TopicPartition, int]:
        """Commit `offsets`, those of partitions that still exist; returns them."""
        try:
            self._send(offsets, generation, metadata)
        except CommitError as error:
            if isinstance(error, CommitTimeoutError) and error.answer != DELETED:
                raise
            existing = self._client.existing(offsets)
            if existing >= offsets.keys():
                raise
            offsets = {tp: offset for tp, offset in offsets.items() if tp in existing}
            if offsets:
                self._send(offsets, generation, metadata)
        return offsets

    def proven_by_group(self, timeout_ms: float) -> bool:
        """Whether the planned batch's offsets are in the group already, committed for this very batch.

        1. A batch succeeds while the group rebalances. 2. The user's process hears of it, where GroupKafkaListener
        commits the batch. 3. This process, which Spark asks only at the next trigger, sees that commit, and need not
        keep the group waiting until then.
        """
        batch = self._planned
        if batch is None:
            return True
        if not batch.ends:
            return False
        if self._committed_for(batch, self._client.committed(batch.ends, timeout_ms)) != batch.ends.keys():
            return False
        self._note_committed(batch, batch.ends)
        self.plan(None)
        return True

    def _committed_for(self, batch: Batch, committed: Mapping[TopicPartition, Committed]) -> set[TopicPartition]:
        """Partitions of which the group has the offset of `batch`, committed for this very batch."""
        ends, number = batch.ends, batch.end.batch
        return {
            tp
            for tp, group in committed.items()
            if group.offset == ends.get(tp) and is_of_batch(group.metadata, self._query_id, number)
        }

    def _note_committed(self, batch: Batch, offsets: Mapping[TopicPartition, int]) -> None:
        self._events.committed(batch.generation, batch.end.batch, offsets)
        self._record(offsets, batch.generation)

    def succeeded(self, done: GroupOffset, timeout_ms: float | None = None) -> bool:
        """Everything up to `done` has succeeded: commit the planned batch if it ends there.

        `timeout_ms`: kafka.default.api.timeout.ms if not given.
        Returns False when the group no longer counts this driver as a member, so that nothing was committed: positions
        must be taken again, which commits those that the checkpoint knows better.
        Raises CommitTimeoutError when it is not known whether the commit arrived: the batch stays planned, and this is
        to be called again. Raises CommitError when the commit failed for good. Raises FencedError.
        """
        batch = self._planned
        if batch is None or batch.end != done:
            return True
        if self._transactional_id is not None and batch.begun and batch.ends:
            return self._committed_by_sink(batch, timeout_ms)
        self.plan(None)
        if not batch.ends:
            return True
        try:
            self._commit_batch(batch, timeout_ms)
        except MembershipLostError as error:
            log.warning(
                "group %s: generation %d: not committed: %s. The rows of %s are in the sink; the members that "
                "took these partitions over may read them again",
                self.group_id, batch.generation, error, " ".join(map(str, batch.reads)),
            )  # fmt: skip
            return False
        return True

    def _committed_by_sink(self, batch: Batch, timeout_ms: float | None) -> bool:
        """Take a batch as committed whose offsets the sink has committed in the transaction of its rows.

        Nothing is committed here, whatever the group has: its offsets say which rows are written.

        1. A batch is run again, and the sink has decided it before the crash, without a partition that others owned.
        2. Its new run has the partition, and the sink writes none of its rows, as the batch is decided. 3. A commit
        would lose the rows of that partition. Without one they are read again from the group's offset.

        Returns False when the group lacks some of its offsets: positions must be taken again, from the group's offsets.
        Raises CommitError when the sink of a batch that this process has planned has committed none. Raises
        BrokerTimeoutError when it is not known: the batch stays planned, and this is to be called again.
        """
        try:
            committed = self._client.committed(batch.ends, timeout_ms)
        except BrokerTimeoutError:
            self.unanswered = True
            raise
        done = self._committed_for(batch, committed)
        self.plan(None)
        if done:
            self._note_committed(batch, {tp: batch.ends[tp] for tp in done})
        lacking = batch.ends.keys() - done
        # Others may have gone on since the sink's commit, where the member was lost, or replaced, in between.
        if any(tp in committed and committed[tp].offset == batch.ends[tp] for tp in lacking) and not any(
            group.metadata for group in committed.values()
        ):
            raise CommitError(
                f"group {self.group_id}: these brokers do not keep the metadata of commits, by which the source knows "
                f"that its sink has committed batch {batch.end.batch}: kafka.transactional.id needs that. Leave it out "
                f"of source and sink, and write at least once"
            )
        not_written = {tp for tp in lacking if self._as_before(tp, batch, committed.get(tp))}
        if not_written and not batch.replayed and (existing := self._client.existing(not_written) & not_written):
            raise CommitError(self._not_by_sink(batch, existing))
        if lacking:
            log.warning(
                "group %s: generation %d: the sink of batch %d has not committed the offsets of %s in its transaction, "
                "or others have gone on since: reading goes on at the group's offsets",
                self.group_id, batch.generation, batch.end.batch, " ".join(map(str, sorted(lacking))),
            )  # fmt: skip
        return not lacking

    def _as_before(self, tp: TopicPartition, batch: Batch, group: Committed | None) -> bool:
        """Whether the group's offset is that from before the batch."""
        return (
            group is None
            or group.offset == self.in_group.get(tp)
            or is_signed_up_to(group.metadata, self._query_id, batch.end.batch)
        )

    def _not_by_sink(self, batch: Batch, tps: Collection[TopicPartition]) -> str:
        rows = ", ".join(str(r) for r in batch.reads if r.tp in tps)
        return (
            f"group {self.group_id}: batch {batch.end.batch} has succeeded, and no sink has committed its offsets: "
            f"{rows}. The source leaves that to the sink with kafka.transactional.id={self._transactional_id}. Give "
            f"the groupkafka sink of this query that id and deliveryGuarantee=exactly-once (a function for "
            f"foreachBatch has to write each micro-batch, also one without rows), or leave the option out of the "
            f"source, for any other sink. Started again, the query reads these records again"
        )

    def _commit_batch(self, batch: Batch, timeout_ms: float | None) -> None:
        try:
            self._commit(batch.ends, batch.generation, batch.end.batch, timeout_ms)
        except CommitError as error:
            self._failed(batch, error)

    def _failed(self, batch: Batch, error: CommitError) -> None:
        """The commit of a batch failed; that is an error unless its topics were deleted, and the others are committed.

        1. The commit is sent, and the coordinator dies. 2. It may have written the commit, or not. 3. The batch stays
        planned, and is committed again before anything else is planned, and before the group is joined again.
        """
        unanswered = isinstance(error, CommitTimeoutError) and error.answer != DELETED
        if not unanswered and self._committed_without_deleted(batch):
            return
        rows = f"The rows of {', '.join(map(str, batch.reads))} are in the sink"
        if isinstance(error, CommitTimeoutError):
            self._planned, self.unanswered = batch, True
            problem = f"{error}. {rows}, and are committed when brokers answer"
            raise CommitTimeoutError(problem, error.answer) from error
        raise CommitError(
            f"{error}. {rows}. Restarted from its checkpoint, this query goes on after them; another consumer of the "
            f"group would read them again"
        ) from error

    def _committed_without_deleted(self, batch: Batch) -> bool:
        """Whether the commit failed because topics were deleted meanwhile; the others are committed then."""
        try:
            existing = self._client.existing(batch.ends)
        except BrokerError:
            return False
        gone = sorted(set(batch.ends) - existing)
        if not gone:
            return False
        log.warning(
            "group %s: generation %d: not committed, as the partitions were deleted: %s",
            self.group_id, batch.generation, " ".join(map(str, gone)),
        )  # fmt: skip
        left = {tp: end for tp, end in batch.ends.items() if tp in existing}
        if left:
            self._commit(left, batch.generation, batch.end.batch)
        return True

    def _commit(
        self,
        offsets: Mapping[TopicPartition, int],
        generation: int,
        batch: int,
        timeout_ms: float | None = None,
    ) -> None:
        sent = self._events.now()
        metadata = commit_metadata(self._query_id, generation, batch)
        self._send(offsets, generation, metadata, timeout_ms)
        self._events.committed(generation, batch, offsets, sent)
        self._record(offsets, generation)

    def _send(
        self,
        offsets: Mapping[TopicPartition, int],
        generation: int,
        metadata: str,
        timeout_ms: float | None = None,
    ) -> None:
        began = time.monotonic()
        try:
            self._client.commit(
                offsets, metadata, generation, epochs=self._epochs.select(offsets), timeout_ms=timeout_ms
            )
        except GroupKafkaError as error:
            self._metrics.failed_commits += 1
            self._hooks.committed(offsets, error)
            raise
        ended = time.monotonic()
        self._metrics.commit.record((ended - began) * 1000, ended)
        if not self.looked_for_metadata:
            self._look_for_metadata(offsets)

    def _look_for_metadata(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Whether the group has the metadata of this process's first commit, which brokers that are not Apache's may
        drop. Offsets of others since then say nothing; the commit has succeeded whatever becomes of the look."""
        try:
            committed = self._client.committed(offsets, METADATA_WITHIN_MS, stable=False)
        except GroupKafkaError as error:
            log.info("group %s: notes of commits: %s", self.group_id, error)
            return
        own = [group for tp, group in committed.items() if group.offset == offsets[tp]]
        self.looked_for_metadata = bool(own) or not committed
        self.keeps_metadata = not own or any(group.metadata for group in own)
        if not self.keeps_metadata:
            log.warning(
                "group %s: these brokers do not keep the metadata of commits. So nobody can say who has committed an "
                "offset: a restarted query goes on from its checkpoint, as onOffsetConflict=auto means checkpoint, and "
                "offsets that another program sets while it is stopped do not count",
                self.group_id,
            )  # fmt: skip

    def _record(self, offsets: Mapping[TopicPartition, int], generation: int) -> None:
        self.in_group |= offsets
        self._hooks.committed(offsets, None)
        if log.isEnabledFor(logging.INFO):
            offsets_listed = " ".join(f"{tp}={offset}" for tp, offset in sorted(offsets.items()))
            log.info("group %s: generation %d: committed %s", self.group_id, generation, offsets_listed)
