"""The cycle that Spark drives: commit what has succeeded, be a member, take positions, plan the next micro-batch.

The life of a query, as Spark calls its `GroupSession`:

1. ``latestOffset(start)`` of the first trigger makes the session. Nothing joins the group before it, as the query's id
   comes with `start`.
2. `start` is the end of the last batch in Spark's commit log. So that batch has succeeded: its end offsets are
   committed, under the generation that planned it (`succeeded`). The commit comes before any join, so that a member
   that gets partitions of this query starts after the batch.
3. The session joins the group, or joins it again if it rebalances (`Settling`). Without an answer of all members in
   time, nothing is planned.
4. It takes positions of partitions that it did not own before (`Taking`).
5. It looks up the ends of the logs (`Backlog`). Nothing to read: it waits for records, and Spark asks again.
6. With records, and alone in the group, it starts a new generation. Whatever changes then begins again at 3.
7. It plans the batch: a share of each partition's backlog, up to an end that Spark writes into its checkpoint.
8. ``partitions(start, end)`` begins the batch (`tasks`). Until then it yields to a rebalance, if another source of the
   same query is in the group (`YieldedBatch`). Spark runs the tasks, and goes on at 2.
9. Between these calls a thread takes part in rebalances (`settle_between_triggers`): a batch that is not proven holds
   them up, at most for kafka.max.poll.interval.ms.
10. After a crash ``partitions(start, end)`` comes first: the batch that was planned before is read again as it was
    (`_replay`), and joining follows.
11. The query ends (`stop`): commits without an answer are made once more, positions are handed over, and the member
    leaves.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from spark_kafka_group.driver import planner
from spark_kafka_group.driver.backlog.end_bounds import MinOffsets
from spark_kafka_group.driver.backlog.log_samples import LogSamples
from spark_kafka_group.driver.membership.member_protocol import Joined
from spark_kafka_group.driver.membership.other_sources import OtherSources
from spark_kafka_group.driver.membership.yielding import YieldedBatch
from spark_kafka_group.driver.planner import Batch
from spark_kafka_group.driver.query import Query
from spark_kafka_group.driver.steps import next_end, replayed
from spark_kafka_group.driver.steps.backlog import Backlog
from spark_kafka_group.driver.steps.handing_over import hand_over, set_right, try_to_hand_over
from spark_kafka_group.driver.steps.next_end import CheckpointedEnds
from spark_kafka_group.driver.steps.progress import progress_of
from spark_kafka_group.driver.steps.settling import Settling
from spark_kafka_group.driver.steps.sink_transaction import SinkTransaction
from spark_kafka_group.driver.steps.taking import Taking
from spark_kafka_group.errors import BrokerError, CommitError, FencedError, MembershipError, MembershipLostError
from spark_kafka_group.options import Options
from spark_kafka_group.values.offsets import GroupOffset, OffsetRange, TopicPartition

log = logging.getLogger(__name__)

UNSETTLED_ROUNDS = 10
PROOF_MS = 2_000  # how long the session may ask whether a batch has been committed, while Spark waits for it


class GroupSession:
    """One query as a member of its group, from the first join to leaving. `first`: the first offset that Spark showed:
    what the checkpoint knows. `caps`: with availableNow, the ends of all logs when the query started. `shared`: a
    directory that the sources of the application share."""

    def __init__(
        self,
        options: Options,
        query_id: str,
        first: GroupOffset,
        caps: Mapping[TopicPartition, int] | None,
        shared: Path | None = None,
    ) -> None:
        query = self._query = Query.started(options, query_id, first)
        self.query_id = query_id
        self.metrics = query.metrics
        self.member = query.member
        self.committer = query.committer
        self.standing = query.standing
        self.checkpointed_ends = CheckpointedEnds()
        self.backlog = Backlog(query, caps)
        self._other_sources = OtherSources(shared, query.group_id, query_id, query.subscription)
        self._yielded = YieldedBatch(query.committer, query.client, query_id)
        self._settling = Settling(query, self._yielded, self._other_sources)
        self._taking = Taking(query, self.backlog, self._yielded, self._other_sources)
        self._samples = LogSamples(options.client)
        self._sink = SinkTransaction.for_query(query, shared)
        self._min_offsets = MinOffsets(options.reading.max_trigger_delay_ms)
        self._shares = 0  # how often a limit has been shared out: whose turn it is
        self._replayed_s = 0.0  # when a batch was run again, by time.monotonic()
        self._slots: dict[TopicPartition, int] = {}  # task number of each partition in the last batch

    def asked(self) -> contextlib.AbstractContextManager[None]:
        """Spark asks for the latest offset until the block ends, so no batch runs."""
        return contextlib.nullcontext() if self._sink is None else self._sink.asked()

    def next_batch(
        self,
        start: GroupOffset,
        max_offsets: int | None = None,
        min_offsets: int | None = None,
        max_bytes: int | None = None,
    ) -> GroupOffset | None:
        """Commit what `start` proves, then plan the batch after it; None when there is no new data, or too little."""
        if self.backlog.still_all_read(start):
            return None
        self.succeeded(start)
        self._discard_planned()
        self.standing.proven = start
        self._yielded.at(start.batch)
        available_now = self.backlog.bounds.available_now  # then nothing more will come
        backlog = self._settled_backlog(max_offsets, None if available_now else min_offsets)
        self._settling.note_settled(backlog is not None)
        may_have_records = backlog is None and available_now
        end = next_end.without_reading(self._query, self.checkpointed_ends, self._yielded.left_out, may_have_records)
        if end is not None:
            return end
        if not backlog:
            self.backlog.wait_for_records()
            return None
        self._min_offsets.planned()
        ranges = planner.share(backlog, max_offsets, self._shares)
        if max_bytes is not None:
            ranges = self._samples.share(ranges, max_bytes, self._shares // planner.turns(backlog, max_offsets))
        self._shares += 1
        end = next_end.after_reading(self._query, self.checkpointed_ends, ranges)
        self._query.plan(Batch(end, ranges, self.member.use()))
        return end

    def tasks(self, start: GroupOffset, end: GroupOffset) -> list[tuple[OffsetRange, ...]]:
        """The tasks of the batch between two offsets, which was planned now or before a crash."""
        ranges = end.ranges(start)
        if not ranges:
            return []
        planned = self.committer.planned
        is_planned = planned is not None and planned.end == end
        batch = self._begin() if is_planned else self._replay(start, end, ranges)
        batch = self._handed_to_sink(batch)
        tasks, self._slots = planner.tasks(
            batch.reads, self._query.options, self._slots, self._samples.bytes_of(batch.reads)
        )
        return tasks

    def succeeded(self, done: GroupOffset, timeout_ms: float | None = None) -> None:
        """Everything up to `done` has succeeded: commit it if that has not been done."""
        planned = self.committer.planned
        if planned is not None and planned.end == done:
            if self._yielded.yielded:  # Spark had no need of its rows
                planned = self._give_up()
            self.standing.prove(done, self.member.owned)
            self.standing.batch_is_logged()
            if planned.ends:
                self.member.check_may_commit()
        if not self.committer.succeeded(done, timeout_ms):
            self.standing.positioned.clear()

    def settle_between_triggers(self, patience_ms: float) -> None:
        """Take part in a rebalance if no batch runs, so that the group need not wait."""
        if self._lets_other_sources_join():
            if self.member.unsettled():
                self._go_on_with_replay(self._settling.be_member(patience_ms))
        elif self._may_rejoin(patience_ms):
            self._settling.be_member(patience_ms)

    def progress(self) -> dict[str, Any] | None:
        """Ends of the owned partitions' logs as last looked up, and the group's offsets, for the query's progress. None
        before the first look. Without a partition it is not None: Spark would go on showing the ends of before."""
        return progress_of(self._query, self.backlog)

    def stop(self, within_ms: float) -> None:
        """Commit what is proven, leave the group and close connections, within this time in all."""
        if self._sink is not None:
            self._sink.close()
        self.member.client.end_within(within_ms)
        try:
            with contextlib.suppress(FencedError):  # the process that took this query's place hands over in its turn
                self._commit_unanswered()
                if self.member.hands_over():
                    try_to_hand_over(self._query)
            held = self.standing.held_generation
            self._query.events.close(-1 if held is None else held)
        finally:
            self.member.stop()
            if self._sink is not None:
                self._sink.abort_left(within_ms)
            self.backlog.close()
            self._samples.close()
            self._other_sources.close()

    # Steps

    def _discard_planned(self) -> None:
        """Forget a planned batch that Spark has not begun: it asks for another one."""
        planned = self.committer.planned
        if planned is not None and not planned.begun:
            if self._yielded.yielded:
                self._give_up()
            self.committer.plan(None)

    def _settled_backlog(self, max_offsets: int | None, min_offsets: int | None) -> list[OffsetRange] | None:
        """The backlog, under a generation in which a batch may be planned; empty if it is too small. None while others
        of the same query hold the group up."""
        for _ in range(UNSETTLED_ROUNDS):
            try:
                if self._settling.be_member(self._settling.patience_ms()) is Joined.NOT_YET:
                    return None
                if not self._settling.has_its_share():
                    return None
                self._taking.take_positions()
                set_right(self._query)
                backlog = self.backlog.ranges(max_offsets)
                if backlog is None:
                    continue
                if not self._min_offsets.worth(sum(r.size for r in backlog), min_offsets):
                    return []
                if self._in_a_generation_of_its_own(backlog):
                    return backlog
            except MembershipLostError as error:
                log.warning("%s; joining again", error)
                self.standing.positioned.clear()
        raise MembershipError(f"the group changed {UNSETTLED_ROUNDS} times while one micro-batch was planned")

    def _in_a_generation_of_its_own(self, backlog: list[OffsetRange]) -> bool:
        """Start a generation for a batch, if it needs one; False when the backlog has to be looked up again.

        1. The backlog has been looked up, and this member asks for a new generation.
        2. Another member joins, or leaves, in the same rebalance.
        3. This member comes back with other partitions than those that were looked up.

        Where the sink commits offsets, the group has the batch's starts before it begins: 1. the query is killed in its
        first batch, 2. another member gets a partition, and finds no offset, 3. the batch is run again without it.
        """
        member = self.member
        if backlog and (member.may_be_joined() or self._sink is not None):
            hand_over(self._query)
        owned = member.generation.assignment
        if self._other_sources.any() and not member.generation.alone:
            return True  # a generation of its own would wait for the others of the same query
        joined = member.next_generation()
        if joined is Joined.SAME or member.generation.unbroken == owned == member.generation.assignment:
            return True
        self._settling.enter(joined)
        return False

    def _begin(self) -> Batch:
        """The planned batch as it is going to be run: from now on it holds up a rebalance."""
        self.standing.batch_is_logged()
        with contextlib.suppress(CommitError, BrokerError):  # no answer: tried again at the next trigger
            set_right(self._query)
        if self._yielded.yielded:
            self._settling.be_member(self._settling.patience_ms())
            if self._yielded.yielded:
                self._give_up()
        planned = self.committer.planned
        assert planned is not None, "Spark begins what was planned"
        batch = self._yielded.begins(replace(planned, begun=True))
        self.committer.plan(batch)
        return batch

    def _replay(self, start: GroupOffset, end: GroupOffset, ranges: list[OffsetRange]) -> Batch:
        """The batch that was planned before a crash, as it was, but for partitions that had been left out of it.

        1. The batch yielded to a rebalance, and the group has metadata that names the partitions that it goes without.
        2. The process dies. The checkpoint says that the batch has these partitions.
        3. The group is asked before joining, as a join that waits at the coordinator holds up all other requests.
        4. If the group does not settle in time, a member may wait for this very batch. So it is read without
           membership, and not committed; the next call joins, and takes positions by the rules. Where the sink commits
           offsets together with rows, it is not read then, unless its rows are written: they are somebody else's. So
           it waits longer: what Spark aggregates is right only if the batch reads all that it has read before.
        """
        if self._sink is None:
            replayed.refuse_without_transactional_id(end)
        self.standing.proven = start
        tps = [r.tp for r in ranges]
        decided = None if self._sink is None else self._sink.decided(end.batch)
        committed = {} if self._query.subscription.manual else self.member.client.committed(tps)
        left_out = frozenset(self._yielded.learn(committed, end))
        by_sink = self._sink is not None and end.in_transaction
        if by_sink and decided is None:
            replayed.refuse_in_another_group(self._query, end)
        patience_ms = self._settling.patience_ms()
        if by_sink and patience_ms is not None:
            patience_ms = max(patience_ms, self._query.options.group.session_timeout_ms)
        joined = self._settling.be_member(patience_ms) is not Joined.NOT_YET
        if by_sink and joined:
            joined = self._settling.has_its_share()
        readable = replayed.readable(self._query, ranges, end)
        if by_sink:
            elsewhere, left = replayed.written_and_left(self._query, readable, end, joined, decided)
            self._yielded.left_out |= left
            left_out |= left.keys()
        else:
            elsewhere = replayed.elsewhere(self._query, readable, end) if joined else frozenset(tps)
        generation = self.member.use() if joined else -1
        batch = Batch(end, readable, generation, elsewhere, left_out, begun=True, replayed=True)
        self._query.plan(batch, replay=True)
        self._replayed_s = time.monotonic()
        return batch

    def _lets_other_sources_join(self) -> bool:
        """Whether a batch that is run again, and that the sink is to commit, does not hold up a rebalance yet.

        1. The query starts, and none of its sources is a member any more. 2. The first one joins, and gives Spark the
        tasks of the batch. 3. Spark asks the next one, which joins in its turn, and needs the first one for that: if
        that held the rebalance up for its batch, the next one would have to leave its part of the batch out.
        """
        planned, sink = self.committer.planned, self._sink
        if sink is None or planned is None or not (planned.replayed and planned.end.in_transaction and planned.ends):
            return False
        limit_s = self._query.options.group.session_timeout_ms / 1000
        return time.monotonic() - self._replayed_s < limit_s and sink.lacks(self._other_sources.apart())

    def _go_on_with_replay(self, joined: Joined) -> None:
        """Let the batch that is run again belong to the new generation, if this member has kept all of it."""
        planned, sink = self.committer.planned, self._sink
        if joined is not Joined.NEW_GENERATION or planned is None or sink is None:
            return
        if planned.ends.keys() <= self.member.generation.unbroken:
            batch = replace(planned, generation=self.member.use())
            self._query.plan(batch, replay=True)
            with contextlib.suppress(MembershipLostError):
                sink.begins(batch)

    def _handed_to_sink(self, batch: Batch) -> Batch:
        """`batch` as it is read, when the sink knows the offsets that it is to commit."""
        if self._sink is None:
            return batch
        try:
            self._sink.begins(batch)
        except MembershipLostError as error:
            if not batch.end.in_transaction:
                raise
            # Nobody could commit it. Its records are planned again, by whoever owns them then.
            log.warning("%s: batch %d reads nothing", error, batch.end.batch)
            batch = self._yielded.dropped(batch)
            self.standing.positioned -= batch.left_out
            self._query.plan(batch, batch.replayed)
            self._sink.begins(batch)
        return batch

    def _give_up(self) -> Batch:
        """The planned batch, which yielded to a rebalance that is not over, is going to read nothing."""
        planned = self.committer.planned
        assert planned is not None, "a batch that yielded is planned"
        batch = self._yielded.given_up(planned, self.standing.positioned, self.member.generation.id)
        self.standing.positioned -= batch.left_out
        self._query.plan(batch)
        return batch

    def _may_rejoin(self, patience_ms: float) -> bool:
        """Whether a rebalance may take partitions now: a batch that runs keeps the group waiting.

        1. A batch that has succeeded, and whose commit got no answer, is committed first.
        2. A batch that has not begun yields, where another source of the same query may be the one that waits. Spark
           is held up until that one has joined, so this one does not wait for the next heartbeat.
        3. A batch that runs may be in the group already: the listener, in the user's process, hears of its success
           before this process does, and commits it.
        """
        planned = self.committer.planned
        if planned is not None and self.committer.unanswered:
            self.succeeded(planned.end, self._query.options.connection.request_timeout_ms)
            return self.member.unsettled()
        if planned is not None and not planned.begun and self._other_sources.any():
            asked = self._yielded.yielded or self.member.hears_of_rebalance()
            positioned, generation = self.standing.positioned, self.member.generation.id
            disputed = planned.ends.keys() & self.standing.disputed  # yielding would set the group back
            return asked and not disputed and self._yielded.yield_to_rebalance(planned, positioned, generation)
        if not self.member.unsettled():
            return False
        return planned is None or not planned.ends or self._proven_by_group(planned, patience_ms)

    def _proven_by_group(self, planned: Batch, patience_ms: float) -> bool:
        try:
            proven = self.committer.proven_by_group(max(patience_ms, PROOF_MS))
        except BrokerError as error:
            log.info("group %s: not known whether the batch is committed: %s", self.committer.group_id, error)
            return False
        if proven:
            self.standing.prove(planned.end, self.member.owned)
        return proven

    def _commit_unanswered(self) -> None:
        """Commit, for a last time, a batch whose commit got no answer."""
        planned = self.committer.planned
        if planned is None or not self.committer.unanswered:
            return
        try:
            self.succeeded(planned.end)
        except (CommitError, MembershipError, BrokerError) as error:
            log.warning("group %s: not committed, as the query ends: %s", self.committer.group_id, error)
