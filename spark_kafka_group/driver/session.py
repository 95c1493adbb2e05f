"""A query's life in its group: what is planned, under which generation, from which positions, and what is committed."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from spark_kafka_group.commit_metadata import group_id_of, instance_id_of, is_own
from spark_kafka_group.driver import planner
from spark_kafka_group.driver.backlog.last_stable import BeyondLastStable
from spark_kafka_group.driver.backlog.long_poll import LongPoll
from spark_kafka_group.driver.backlog.min_offsets import MinOffsets
from spark_kafka_group.driver.backlog.pausing import PausedPartitions
from spark_kafka_group.driver.backlog.retry_delays import RetryDelays
from spark_kafka_group.driver.committer import Batch, Committer
from spark_kafka_group.driver.hooks import Hooks
from spark_kafka_group.driver.membership.manual_assignment import ManualAssignment
from spark_kafka_group.driver.membership.member import Joined, Member
from spark_kafka_group.driver.membership.other_members import others_in_group
from spark_kafka_group.driver.membership.siblings import Siblings
from spark_kafka_group.driver.membership.yielding import YieldedBatch
from spark_kafka_group.driver.positions import rules, truncation, unowned
from spark_kafka_group.driver.positions.checkpointed_ends import CheckpointedEnds
from spark_kafka_group.driver.positions.data_loss import DataLoss
from spark_kafka_group.driver.positions.lookup import looked_up, looked_up_until
from spark_kafka_group.driver.reporting.awaited_topics import AwaitedTopics
from spark_kafka_group.driver.reporting.backlog_ages import BacklogAges
from spark_kafka_group.driver.reporting.events import EventLog
from spark_kafka_group.driver.reporting.metrics import Metrics
from spark_kafka_group.driver.reporting.progress import Progress
from spark_kafka_group.errors import (
    BrokerError,
    BrokerTimeoutError,
    CommitError,
    CommitTimeoutError,
    FencedError,
    MembershipError,
    MembershipLostError,
)
from spark_kafka_group.offsets import (
    GROUP_KEY,
    GroupOffset,
    OffsetRange,
    TopicPartition,
)
from spark_kafka_group.options import Options
from spark_kafka_group.options.bounds import AtTime, Bound
from spark_kafka_group.wire import Committed

log = logging.getLogger(__name__)

UNSETTLED_ROUNDS = 10
SIBLING_SLACK_MS = 2_000
"""So much longer than until the next heartbeat a source waits for others of its query, which may be waiting for it."""
SHARE_PAUSE_S = 0.05
PROOF_MS = 2_000
"""So long Spark may find the session busy with asking whether a batch has been committed."""
ENDS_HOLD_S = 1.0
"""So long ends of logs are good enough where they leave a batch all it may have."""


class GroupSession:
    """One query as a member of its group, from the first join to leaving.

    Parameters
    ----------
    reader
        The query's id, kept in its checkpoint.
    first
        The first offset that Spark showed: what the checkpoint knows.
    caps
        With availableNow, the ends of all logs when the query started.
    shared
        A directory that the sources of the application share.
    """

    def __init__(
        self,
        options: Options,
        reader: str,
        first: GroupOffset,
        caps: Mapping[TopicPartition, int] | None,
        shared: Path | None = None,
    ) -> None:
        group_id = group_id_of(options.group.id, options.group.id_prefix, reader)
        self.reader = reader
        self.metrics = Metrics()
        self.kept = CheckpointedEnds()
        hooks = Hooks(options, self.metrics)
        self._events = EventLog(options.reading.event_log, group_id, reader)
        self.epochs = truncation.LeaderEpochs(first)
        self.committer = Committer(group_id, reader, hooks, self._events, self.metrics, self.epochs)
        self.member: Member | ManualAssignment
        if options.reading.subscription.manual:
            self.member = ManualAssignment(options, group_id, reader, self._events)
        else:
            static_id = instance_id_of(options.group.instance_id, reader)
            self.member = Member(options, group_id, static_id, hooks, self._events, self.metrics)
        self._options = options
        starting = options.reading.starting or Bound("startingOffsets", group=True)
        self._rules = rules.StartRules(
            starting, options.reading.auto_offset_reset or "latest", options.reading.retry_delays_ms
        )
        self._losses = DataLoss(options.reading.fail_on_data_loss, self.metrics)
        self._holding = MinOffsets(options.reading.max_trigger_delay_ms)
        self._due = RetryDelays(options.reading.retry_delays_ms, self.member.client.offsets_for_times)
        self._unbegun = YieldedBatch(self.committer, self.member.client, reader)
        self._siblings = Siblings(shared, group_id, reader, options.reading.subscription)
        self._unsettled_since: float | None = None
        self._paused = PausedPartitions(options.reading.paused, options.reading.pause_file)
        self._unstable = BeyondLastStable()
        self._caps = caps
        self._stops: dict[TopicPartition, int] = {}  # where the options say that reading ends, as far as it is known
        self._foreign = first.reader is None  # the checkpoint is one of Spark's own kafka source
        self._topic_ids = dict(first.topic_ids)
        self._is_new_query = not first.positions and not first.left
        self._is_restart = True  # until positions have been taken for the first time
        self._known = {*first.positions, *first.left}  # partitions that existed when last looked
        self._at_first: set[TopicPartition] = set()  # partitions that existed when this process started
        self._anew: set[str] = set()  # topics made again after they were deleted, until their start has been decided
        self._remade: set[TopicPartition] = set()  # partitions of such topics that others own meanwhile
        self._gone: set[TopicPartition] = set()  # partitions of the checkpoint that were deleted, and said to be
        self._start = first  # what is proven, as last told
        self._by_group: set[TopicPartition] = set()  # not owned since the start, and the group is right about them
        self._positioned: set[TopicPartition] = set()  # owned partitions whose start has been decided
        self._moved: dict[TopicPartition, int] = {}  # starts that are not the end of the last batch
        self._cut: dict[TopicPartition, int] = {}  # where a batch that is read again ends, as its logs lost their ends
        self._ends: dict[TopicPartition, int] = {}
        self._looked_at: float | None = None  # when ends of logs were looked up last
        self._watch = LongPoll(options)
        self._waiting = AwaitedTopics(group_id, options.reading.subscription)
        self._all_read: tuple[GroupOffset, int, frozenset[TopicPartition]] | None = None  # start, generation, paused
        self._ages = BacklogAges()
        self._slots: dict[TopicPartition, int] = {}
        self._turn = 0
        self._held: int | None = None  # latest generation in which this process took positions or planned

    def next_batch(
        self, start: GroupOffset, max_offsets: int | None = None, min_offsets: int | None = None
    ) -> GroupOffset | None:
        """Commit what `start` proves, then plan the batch after it; None when there is no new data, or too little."""
        if self._still_all_read(start):
            return None
        self.succeeded(start)
        self._discard_unbegun()
        self._start = start
        self._unbegun.at(start.batch)
        # With availableNow nothing more will come.
        backlog = self._settled_backlog(start, max_offsets, min_offsets if self._caps is None else None)
        if backlog is not None:
            self._unsettled_since = None
        elif self._unsettled_since is None:
            self._unsettled_since = time.monotonic()
        true = start.positions | {tp: at for tp, at in self._unbegun.left_out.items() if tp in start.positions}
        # Without a batch now, if an empty one, a query with availableNow might end with records left to read.
        in_doubt = backlog is None and self._caps is not None and start.reader is not None
        if in_doubt or true != start.positions:
            moved = self.kept.starts(start, true)
            self.kept.planned(start)
            return replace(start, positions=true, batch=start.batch + 1, moved=moved)
        if not backlog:
            self._wait_for_records(start)
            return None
        self._holding.planned()
        ranges = planner.share(backlog, max_offsets, self._turn)
        self._turn += 1
        end = self._end_of(start, ranges)
        self.kept.planned(start)
        self._plan(Batch(end, ranges, self.member.use()), replay=False)
        return end

    def _still_all_read(self, start: GroupOffset) -> bool:
        """Whether nothing can have changed since a call that found every log read to its end."""
        if self._all_read is None or not self.member.undisturbed():
            return False
        if self._all_read != (start, self.member.generation.id, self._paused.partitions()):
            return False
        return self._watch.nothing_new(self._due.left_s()) and not self._due.passed()

    def _wait_for_records(self, start: GroupOffset) -> None:
        """Nothing is planned: have brokers say when records come to the partitions that may be read on."""
        paused = self._paused.partitions()
        stopped = {tp for tp, stop in self._stops.items() if self._ends.get(tp, 0) >= stop}
        ends = {tp: end for tp, end in self._ends.items() if tp not in paused and tp not in stopped}
        left = self._due.due_as_known([OffsetRange(tp, self._position(start, tp), end) for tp, end in ends.items()])
        read = all(r.size == 0 for r in left)
        self._all_read = (start, self.member.generation.id, paused) if read else None
        if self._caps is None and self._looked_at is not None:
            self._watch.start(ends, self._looked_at)

    def tasks(self, start: GroupOffset, end: GroupOffset) -> list[tuple[OffsetRange, ...]]:
        """The tasks of the batch between two offsets, which was planned now or before a crash."""
        ranges = end.ranges(start)
        if not ranges:
            return []
        planned = self.committer.planned
        batch = self._begun(planned) if planned is not None and planned.end == end else self._again(start, end, ranges)
        tasks, self._slots = planner.tasks(batch.reads, self._options, self._slots)
        return tasks

    def _begun(self, planned: Batch) -> Batch:
        """The planned batch as it is going to be run."""
        if self._unbegun.aside:
            self._be_member(self._patience_ms())
            if self._unbegun.aside:
                self._give_up()
        batch = self._unbegun.begins(replace(self.committer.planned or planned, begun=True))
        self.committer.plan(batch)
        return batch

    def _again(self, start: GroupOffset, end: GroupOffset, ranges: list[OffsetRange]) -> Batch:
        """The batch that was planned before a crash, as it was, but for what had been left out of it."""
        self._start = start
        tps = [r.tp for r in ranges]
        # Before joining: while a join waits in the broker, the coordinator's connection is deaf.
        committed = {} if self._options.reading.subscription.manual else self.member.client.committed(tps)
        left_out = frozenset(self._unbegun.learn(committed, end.batch))
        joined = self._be_member(self._patience_ms()) is not Joined.NOT_YET
        ranges = self._still_in_logs(self._still_there(ranges, end), end)
        if joined:
            batch = Batch(end, ranges, self.member.use(), self._elsewhere(ranges, end), left_out, begun=True)
        else:
            # Whoever holds up the group may wait for this very batch. The next call joins, and commits what it read.
            batch = Batch(end, ranges, -1, frozenset(tps), left_out, begun=True)
        self._plan(batch, replay=True)
        return batch

    def succeeded(self, done: GroupOffset, timeout_ms: float | None = None) -> None:
        """Everything up to `done` has succeeded: commit it if that has not been done."""
        planned = self.committer.planned
        if planned is not None and planned.end == done:
            if self._unbegun.aside:  # Spark had no need of its rows
                planned = self._give_up()
            self._proven(done)
            if planned.ends:
                self.member.check_may_commit()
        if not self.committer.succeeded(done, self.member.client, timeout_ms):
            self._positioned.clear()

    def settle_idly(self, patience_ms: float) -> None:
        """Between Spark's calls: take part in a rebalance if no batch runs, so that the group need not wait.

        A batch that is planned and not yet proven keeps the group waiting, unless its offsets are in the group already,
        or it has not begun, and another source of the same query may be the one that waits. One that is proven and
        whose commit got no answer is committed first.
        """
        planned = self.committer.planned
        if planned is not None and self.committer.unanswered:
            self.succeeded(planned.end, self._options.connection.request_timeout_ms)
            if not self.member.unsettled():
                return
        elif planned is not None and not planned.begun and self._siblings.any():
            # Spark is held up until the other source has joined: this one does not wait for the next heartbeat.
            asked = self._unbegun.aside or self.member.hears_of_rebalance()
            if not (asked and self._unbegun.set_aside(planned, self._positioned, self.member.generation.id)):
                return
        elif not self.member.unsettled():
            return
        elif planned is not None and planned.ends:
            try:
                if not self.committer.proven_by_group(self.member.client, max(patience_ms, PROOF_MS)):
                    return
            except BrokerError as error:
                log.info("group %s: not known whether the batch is committed: %s", self.committer.group_id, error)
                return
            self._proven(planned.end)
        self._be_member(patience_ms)

    def progress(self) -> dict[str, Any] | None:
        """For the query's progress: ends of the owned partitions' logs as last looked up, and what the group knows.

        None before the first look. Without a partition it is not None: Spark would go on showing the ends of before.
        """
        if self._looked_at is None:
            return None
        generation, planned = self.member.generation, self.committer.planned
        owned = generation.assignment & self._positioned & self._ends.keys()
        starts = {tp: self._position(self._start, tp) for tp in owned}
        ahead = planned.end.positions if planned is not None else {}
        at = {tp: ahead.get(tp, start) for tp, start in starts.items()}
        since = {tp: self._ages.since_ms(tp, at[tp]) for tp in owned}
        client, now_ms = self.member.client, time.time() * 1000
        shown = Progress(
            self.committer.group_id, generation, starts, at, {tp: self._ends[tp] for tp in owned},
            {tp: offset for tp, offset in self.committer.in_group.items() if tp in owned},
            {tp: ms for tp, ms in since.items() if ms is not None}, now_ms,
        ).to_json()  # fmt: skip
        shown[GROUP_KEY] |= self.metrics.to_json(client.timings, client.failed_rebalances, time.monotonic(), now_ms)
        return shown

    def stop(self, within_ms: float) -> None:
        """Commit what is proven, leave the group and close connections; all that brokers are asked takes no longer."""
        self.member.client.end_within(within_ms)
        try:
            with contextlib.suppress(FencedError):  # whoever took this query's place hands over in its turn
                self._commit_unanswered()
                if self.member.hands_over():
                    self._try_to_hand_over()
            self._events.close(self._held if self._held is not None else -1)
        finally:
            self.member.stop()
            self._watch.close()
            self._siblings.close()

    # Parts

    def _commit_unanswered(self) -> None:
        """A last time: the query ends."""
        planned = self.committer.planned
        if planned is None or not self.committer.unanswered:
            return
        try:
            self.succeeded(planned.end)
        except (CommitError, MembershipError, BrokerError) as error:
            log.warning("group %s: not committed, as the query ends: %s", self.committer.group_id, error)

    def _proven(self, end: GroupOffset) -> None:
        """From now on partitions stand where this batch ended."""
        owned = self.member.generation.assignment
        self._moved = {tp: at for tp, at in self._moved.items() if tp in owned and tp not in end.positions}
        self._moved |= self._cut
        self._cut = {}
        self._start = end

    def _still_there(self, ranges: Collection[OffsetRange], end: GroupOffset) -> list[OffsetRange]:
        """Of a batch that is read again, the ranges of partitions that still exist.

        Of partitions that are not subscribed to any more executors find out.
        """
        client, subscription = self.member.client, self._options.reading.subscription
        anew = rules.made_anew(end.topic_ids, client.topic_ids({r.tp.topic for r in ranges}))
        concerned = [r.tp for r in ranges if r.tp.topic in anew]
        told = self._others(client.committed(concerned), end.batch) if concerned else {}
        gone = self._gone_for_good([r.tp for r in ranges if subscription.has(r.tp)])
        left = []
        for r in ranges:
            if r.tp in told:
                log.warning("%s; going on at the group's offset", _made_anew(r.tp, r.start))
            elif r.tp.topic in anew:
                self._losses.report("PARTITION_OFFSET_CHANGED", _made_anew(r.tp, r.start), r.size)
            elif r.tp in gone:
                self._losses.report("PARTITIONS_DELETED", f"{r} is to be read again, and {r.tp} was deleted", r.size)
            else:
                left.append(r)
        return left

    def _still_in_logs(self, ranges: Collection[OffsetRange], end: GroupOffset) -> list[OffsetRange]:
        """Of a batch that is read again, what its partitions' logs have not lost since.

        Where logs diverge is where reading goes on after it.
        """
        subscription = self._options.reading.subscription
        ends = {r.tp: r.end for r in ranges if r.tp in end.epochs and subscription.has(r.tp)}
        found = truncation.settled(self.member.client, ends, end.epochs)
        for r in ranges:
            if r.tp in found.diverged or r.tp in found.replaced:
                told, at = truncation.explained(found, r.tp, r.end, end.epochs)
                self._losses.report("PARTITION_OFFSET_CHANGED", told, r.end - min(max(at, r.start), r.end))
                self._cut |= {r.tp: at} if at < r.end else {}
        self.epochs.known |= found.epochs
        left = [r._replace(end=min(r.end, self._cut.get(r.tp, r.end))) for r in ranges]
        return [r for r in left if r.size > 0]

    def _gone_for_good(self, tps: Collection[TopicPartition]) -> set[TopicPartition]:
        """Those of `tps` that do not exist, also when looked again: a broker just started may not know yet."""
        gone = set(tps)

        def look() -> bool:
            gone.difference_update(self.member.client.existing(gone))
            return not gone

        if gone:
            looked_up_until(bool, look)
        return gone

    def _give_up(self) -> Batch:
        """Nothing of the planned batch, which gave way to a rebalance that is not over, is going to be read."""
        planned = self.committer.planned
        assert planned is not None, "nothing is aside without a batch"
        batch = self._unbegun.given_up(planned, self._positioned, self.member.generation.id)
        self._positioned -= batch.left_out
        self._plan(batch, replay=False)
        return batch

    def _discard_unbegun(self) -> None:
        """Forget a batch that Spark has not begun and asks for anew."""
        planned = self.committer.planned
        if planned is not None and not planned.begun:
            if self._unbegun.aside:
                self._give_up()
            self.committer.plan(None)

    def _patience_ms(self) -> float | None:
        """How long to wait for other members: as long as a consumer does, unless one may wait for this one's return.

        That is another source of the same query: its batch is over when Spark asks it, which it does after this one.
        """
        since = self._unsettled_since
        too_long = since is not None and time.monotonic() - since > self._options.group.max_poll_interval_ms / 1000
        if too_long or not self._siblings.any():
            return None
        return self._options.group.heartbeat_interval_ms + SIBLING_SLACK_MS

    def _elsewhere(self, ranges: Collection[OffsetRange], end: GroupOffset) -> frozenset[TopicPartition]:
        """Of a batch that is read again, the partitions that others moved, or may own.

        Nobody else owns a partition while this query is alone in the group, even if it has left the topic.
        """
        generation = self.member.generation
        committed = self.member.client.committed([r.tp for r in ranges])
        alone = generation.alone or self._options.reading.subscription.manual
        others = set() if alone else {r.tp for r in ranges if r.tp not in generation.assignment}
        moved = {
            r.tp for r in ranges
            if (group := committed.get(r.tp)) is not None
            and group.offset != r.start
            and not is_own(group.metadata, self.reader, end.batch)
        }  # fmt: skip
        for tps, why in ((moved, "others have gone on"), (others - moved, "this query does not own them any more")):
            if tps:
                log.warning(
                    "group %s: rows of %s come again, as the checkpoint says, and are not committed: %s",
                    self.committer.group_id, " ".join(map(str, sorted(tps))), why,
                )  # fmt: skip
        return frozenset(others | moved)

    def _be_member(self, patience_ms: float | None = None) -> Joined:
        """Be a member of a settled group, if it settles in time; a planned batch that gave way goes on."""
        if self.member.asked_to_rejoin():
            self._hand_over()
        joined = self.member.ensure(patience_ms)
        self._entered(joined)
        planned = self.committer.planned
        if joined is not Joined.NOT_YET and planned is not None and self._unbegun.aside:
            self._note_held()
            resumed = self._unbegun.resumed(planned, self._positioned, self.member.generation.id)
            if resumed is not None:
                self.member.use()
                self._plan(resumed, replay=False)
        return joined

    def _entered(self, joined: Joined) -> None:
        if joined is Joined.AS_NEW:
            self._positioned.clear()
        elif joined is Joined.NEW_GENERATION:
            self._positioned &= self.member.generation.unbroken

    def _hand_over(self) -> None:
        """Commit where partitions stand of which the group has nothing, before a rebalance may give them to others.

        Otherwise who gets such a partition starts at its own kafka.auto.offset.reset, and misses what came meanwhile.

        Raises
        ------
        CommitTimeoutError, BrokerTimeoutError
            When brokers do not answer: the rebalance has to wait, as long as the group does.
        """
        offsets = {tp: self._position(self._start, tp) for tp in self._unread()}
        self._note_held()
        try:
            self.committer.correct(offsets, self.member.client, self.member.generation.id, self._start.batch)
        except (CommitTimeoutError, BrokerTimeoutError):
            raise
        except (MembershipLostError, CommitError, BrokerError) as error:
            log.warning("group %s: positions could not be handed over: %s", self.committer.group_id, error)

    def _try_to_hand_over(self) -> None:
        """As the query ends, whatever brokers answer."""
        try:
            self._hand_over()
        except (CommitTimeoutError, BrokerTimeoutError) as error:
            log.warning("group %s: positions could not be handed over: %s", self.committer.group_id, error)

    def _unread(self) -> list[TopicPartition]:
        """Partitions that exist, with a position that the group does not have."""
        in_group = self.committer.in_group
        owned = self._positioned & self.member.generation.assignment
        unread = [tp for tp in owned if in_group.get(tp) != self._position(self._start, tp)]
        if not unread:
            return unread
        existing = self.member.client.known_partitions(self._options.reading.subscription)
        return [tp for tp in unread if tp in existing]

    def _settled_backlog(
        self, start: GroupOffset, max_offsets: int | None, min_offsets: int | None
    ) -> list[OffsetRange] | None:
        """What there is to read, under a generation in which a batch may be planned; nothing if it is too little.

        None while others of the same query hold the group up.
        """
        member = self.member
        for _ in range(UNSETTLED_ROUNDS):
            try:
                if self._be_member(self._patience_ms()) is Joined.NOT_YET or not self._has_its_share():
                    return None
                self._take_positions(start)
                backlog = self._backlog(start, max_offsets)
                if backlog is None:
                    continue
                if not self._holding.worth(sum(r.size for r in backlog), min_offsets):
                    return []
                if backlog and member.may_be_joined():
                    self._hand_over()
                owned = member.generation.assignment
                if self._siblings.any() and not member.generation.alone:
                    return backlog  # a generation of its own would wait for the others of the same query
                joined = member.next_generation()
                if joined is Joined.SAME or member.generation.unbroken == owned == member.generation.assignment:
                    return backlog
                # Somebody joined or left just now: what was looked up is no longer what this member owns.
                self._entered(joined)
            except MembershipLostError as error:
                log.warning("%s; joining again", error)
                self._positioned.clear()
        raise MembershipError(f"the group changed {UNSETTLED_ROUNDS} times while one micro-batch was planned")

    def _has_its_share(self) -> bool:
        """At the start, wait for the first share of each topic; False when that has begun a join that is not over.

        A leader deals topics that only this member reads one generation late, cooperative-sticky what it takes from
        others. Both follow at once, and with availableNow a query that does not wait may end without its records.
        """
        patience_ms = self._patience_ms()
        if not self._is_restart or patience_ms is None:
            return True
        deadline = time.monotonic() + patience_ms / 1000
        while (left_ms := (deadline - time.monotonic()) * 1000) > 0:
            topics = {tp.topic for tp in self.member.client.known_partitions(self._options.reading.subscription)}
            if topics <= {tp.topic for tp in self.member.generation.assignment}:
                break
            if not self.member.hears_of_rebalance():
                time.sleep(SHARE_PAUSE_S)
            elif self._be_member(left_ms) is Joined.NOT_YET:
                return False
        return True

    def _take_positions(self, start: GroupOffset) -> None:
        """Decide where owned partitions start that this member did not own before."""
        client, generation = self.member.client, self.member.generation
        given_up = self._existing({tp: at for tp, at in self._moved.items() if tp not in generation.assignment})
        self._moved = {tp: at for tp, at in self._moved.items() if tp in generation.assignment} | given_up
        self._check_topics(start)
        self._check_deleted(start)
        known_before = {tp for tp in self._known - self._remade if tp.topic not in self._anew}
        if self._is_restart:
            self._at_first = client.known_partitions(self._options.reading.subscription)
            self._check_named(self._at_first)
        missing = generation.assignment - self._positioned - self._gone
        if self._is_restart:
            committed = self._committed_at_start(start, missing)
        else:
            committed = self._committed(missing) if missing else {}
        if missing:
            self._check_not_replaced(committed)
        self._unbegun.learn(committed, start.batch, start.batch + 1)
        in_group = self.committer.in_group
        untouched = frozenset(tp for tp, group in committed.items() if in_group.get(tp) == group.offset)
        starts = self._starts(missing, known_before, committed, untouched, start)
        if not missing:
            self._taken()
            return
        self._warn_of(starts, committed)
        self._ends = {}  # of logs that may have been made again, or moved on under others
        self._due.forget(missing)
        strategy = self._options.reading.starting_by_timestamp_strategy
        offsets = looked_up(client, {tp: s.offset for tp, s in starts.items()}, strategy)
        self._check_added(starts, offsets, start)
        self.epochs.taken(offsets, start, committed, lambda tp: tp.topic in self._anew)
        # The group's own offset needs no reason, unless it contradicts the checkpoint.
        reasoned = {tp: s for tp, s in starts.items() if tp in offsets and (s.conflict or s.why != rules.BY_GROUP)}
        if reasoned:
            self._events.moved(
                generation.id, {tp: (start.positions.get(tp), offsets[tp], s.why) for tp, s in reasoned.items()}
            )
        wrong = rules.wrong_in_group(starts, committed, start, self.reader)
        corrections = {tp: offsets[tp] for tp in wrong if tp in offsets}
        adopted = rules.adopted(offsets, committed, corrections, self.reader, start.batch)
        if corrections or adopted:
            self.member.check_may_commit()
        moved = {tp: at for tp, at in (self._moved | offsets).items() if start.positions.get(tp) != at}
        # Should the commits fail, all is decided anew, but for what nobody else says.
        self._moved |= {tp: at for tp, at in moved.items() if tp not in committed}
        with self.committer.agreed(missing, committed):
            newer = self.committer.correct(corrections, client, generation.id, start.batch)
            newer |= self.committer.adopt(adopted, client, generation.id, start.batch)
        self._moved = moved
        self._positioned |= set(offsets) - newer  # whose positions are taken again
        self._known |= set(offsets)
        self._remade -= set(offsets)
        if self._is_restart and not self._is_new_query:
            self.metrics.offset_conflicts += sum(s.conflict is not None for s in starts.values())
        self._taken()
        log.info("starting at %s", " ".join(f"{tp}={offset}" for tp, offset in sorted(offsets.items())))

    def _warn_of(
        self, starts: Mapping[TopicPartition, rules.Start], committed: Mapping[TopicPartition, Committed]
    ) -> None:
        """Say where the group contradicts the start that was taken, and where it may have forgotten one."""
        for tp in sorted(starts):
            if starts[tp].conflict:
                log.warning("group %s: %s", self.committer.group_id, starts[tp].conflict)
        without = rules.without_offset(starts, committed, self._is_new_query)
        if without:
            log.warning(
                "group %s: no committed offset for %s, never or not any more: starting there as "
                "kafka.auto.offset.reset says (%s)",
                self.committer.group_id, " ".join(map(str, without)), self._rules.auto_offset_reset,
            )  # fmt: skip

    def _taken(self) -> None:
        """Positions have been taken: from now on the query runs."""
        if self._is_restart:
            # Later ones are known when they have been read: others may own a new partition for a while, or nobody.
            self._known |= self._at_first
        self._is_new_query = self._is_restart = False
        self._anew.clear()

    def _committed_at_start(
        self, start: GroupOffset, missing: Collection[TopicPartition]
    ) -> dict[TopicPartition, Committed]:
        """As :meth:`_committed`; and take note of what the group says of the checkpoint's other partitions."""
        mine = self._unowned(start, self.member.generation.assignment)
        asked = {*missing, *mine}
        committed = self._committed(asked) if asked else {}
        others = {tp: group for tp, group in committed.items() if tp in mine}
        if self._foreign and self._options.reading.on_offset_conflict != "group":
            # Spark's own source never commits. What the group says now is older than its checkpoint, also of partitions
            # that others own as yet; what the group says later is newer.
            self.committer.in_group |= {tp: group.offset for tp, group in others.items()}
        else:
            self._by_group = unowned.settled(mine, others, self.reader, start.batch)
        return {tp: group for tp, group in committed.items() if tp in missing}

    def _unowned(self, start: GroupOffset, owned: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where partitions stand that this query has read, or was about to read, and that are not `owned`."""
        return self._existing({tp: at for tp, at in self._kept(start).items() if tp not in owned})

    def _existing(self, positions_of: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Without partitions of topics that are subscribed to and that do not exist, as the cluster last told."""
        if not positions_of:
            return {}
        subscription = self._options.reading.subscription
        existing = self.member.client.known_partitions(subscription)
        return {tp: at for tp, at in positions_of.items() if tp in existing or not subscription.has(tp)}

    def _kept(self, start: GroupOffset) -> dict[TopicPartition, int]:
        """Where partitions stand, owned or not, as far as this query knows."""
        known = start.left | start.positions | self._moved
        return {tp: at for tp, at in known.items() if tp not in self._remade}

    def _committed(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, Committed]:
        """What the group says of `tps`; not asked where it has no say."""
        if self._is_new_query and self._options.reading.subscription.manual and not self._rules.starting.group:
            return {}  # so that assign with explicit offsets needs no rights on a group before its first commit
        return self.member.client.committed(tps)

    def _starts(
        self,
        missing: Collection[TopicPartition],
        known_before: Collection[TopicPartition],
        committed: Mapping[TopicPartition, Committed],
        untouched: frozenset[TopicPartition],
        start: GroupOffset,
    ) -> dict[TopicPartition, rules.Start]:
        anew = {tp for tp in missing if tp.topic in self._anew}
        kept = {tp: at for tp, at in self._kept(start).items() if tp in missing}
        kept |= {tp: offset for tp, offset in self._unbegun.left_out.items() if tp in missing}
        kept = {tp: offset for tp, offset in kept.items() if tp not in anew}
        rest = set(missing) - set(kept) - anew
        foreign = self._foreign and self._is_restart
        checkpoint = rules.Checkpoint(kept, self.reader, start.generation, start.batch, foreign, untouched)
        policy = self._options.reading.on_offset_conflict if self._is_restart else "auto"
        starts = rules.restarted(checkpoint, committed, policy)
        # What this query said of a topic that was deleted, to the group too, does not hold for the one made after it.
        starts |= rules.new_partitions(
            anew, {tp: c for tp, c in committed.items() if tp in self._others(committed, start.batch)}
        )
        if self._is_new_query:
            return starts | self._rules.new(rest, committed, self._others_read(rest & committed.keys()))
        unseen = rest - set(known_before)
        return starts | rules.new_partitions(unseen, committed) | self._rules.gained(rest - unseen, committed)

    def _others_read(self, tps: Collection[TopicPartition]) -> tuple[str, ...]:
        """Names of members that go on from what the group has committed of `tps`, where options say other starts."""
        if not tps or self._rules.starting.group or self._options.reading.subscription.manual:
            return ()
        names = {reader: instance_id_of(self._options.group.instance_id, reader) for reader in self._siblings.apart()}
        own = instance_id_of(self._options.group.instance_id, self.reader)
        return others_in_group(self.member.client, self.member.generation, own, names.values())

    def _others(self, committed: Mapping[TopicPartition, Committed], batch: int) -> dict[TopicPartition, Committed]:
        """What somebody else committed, for a checkpoint that ends with `batch`."""
        return {tp: group for tp, group in committed.items() if not is_own(group.metadata, self.reader, batch)}

    def _check_topics(self, start: GroupOffset) -> None:
        """Topics that were deleted and made again: offsets of the old one mean other records.

        A group's offset that somebody wrote after that is the way out, so it is looked at before this is an error.
        """
        owned = self.member.generation.assignment
        now = self.member.client.topic_ids({tp.topic for tp in owned})
        anew = rules.made_anew(self._topic_ids, now)
        if anew:
            kept = {tp: at for tp, at in self._kept(start).items() if tp.topic in anew}
            concerned = sorted(owned & kept.keys())
            self._remade |= kept.keys() - owned
            told = self._others(self._committed(concerned), start.batch)
            for tp in concerned:
                if tp not in told:
                    self._losses.report("PARTITION_OFFSET_CHANGED", _made_anew(tp, kept[tp]))
            self._positioned -= set(concerned)
            self._anew |= set(anew)
            self._at_first = {tp for tp in self._at_first if tp.topic not in anew}
            self._stops = {tp: stop for tp, stop in self._stops.items() if tp.topic not in anew}
        self._topic_ids |= now

    def _check_deleted(self, start: GroupOffset) -> None:
        """Partitions that this query was reading and that are no more; others may have taken over those that are."""
        subscription, client = self._options.reading.subscription, self.member.client
        if not self._gone and not subscription.manual and start.positions.keys() <= self.member.generation.assignment:
            return
        known = client.known_partitions(subscription)
        self._gone -= known
        gone = {tp for tp in start.positions if subscription.has(tp)} - self._gone - known
        gone = self._gone_for_good(gone)
        if gone:
            told = ", ".join(f"{tp} (read up to {self._position(start, tp)})" for tp in sorted(gone))
            named = "_AND_GROUP_ID_CONFIG_PRESENT" if self._options.group.id is not None else ""
            self._losses.report(f"PARTITIONS_DELETED{named}", f"partitions have been deleted: {told}")
            self._gone |= gone
            self._positioned -= gone

    def _check_added(
        self, starts: Mapping[TopicPartition, rules.Start], offsets: Mapping[TopicPartition, int], at: GroupOffset
    ) -> None:
        """New partitions must be there from their first record on.

        One that this query has not read, of a topic of which it did not read all those before, may only be new to it.
        """
        for tp in sorted(tp for tp, start in starts.items() if start.why == rules.NEW):
            if tp not in offsets:
                self._losses.report(
                    "INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS", f"{tp} was added, and deleted before it could be read"
                )
            elif offsets[tp]:
                told = f"partition {tp} was added and starts from {offsets[tp]} instead of 0"
                before = {TopicPartition(tp.topic, p) for p in range(tp.partition)} - starts.keys()
                if tp.topic in self._anew or before <= at.positions.keys():
                    self._losses.report("ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO", told, offsets[tp])
                else:
                    log.warning("%s, or was another member's, which has committed nothing", told)

    def _check_named(self, existing: Collection[TopicPartition]) -> None:
        """Partitions that options name one by one must be those that exist; retry topics need not be named."""
        starting = self._rules.starting if self._is_new_query else None
        for bound in (starting, self._options.reading.ending):
            if bound is not None:
                bound.check(rules.spoken_of(bound, existing, self._options.reading.retry_delays_ms))

    def _check_not_replaced(self, committed: Mapping[TopicPartition, Committed]) -> None:
        if self._held is not None and not self._options.reading.subscription.manual:
            generation = rules.replaced_in(committed, self.reader, self._held)
            if generation is not None:
                raise FencedError(
                    f"another process went on with this query, up to generation {generation}, while this one was "
                    f"out of the group: it must not go on"
                )
        self._held = self.member.generation.id

    def _note_held(self) -> None:
        """What is going to be committed under this generation is this process's own, also if no answer comes.

        It has been a member all the time since it took the positions that it has.
        """
        if self._positioned:
            generation = self.member.generation.id
            self._held = generation if self._held is None else max(self._held, generation)

    def _position(self, start: GroupOffset, tp: TopicPartition) -> int:
        moved = self._moved.get(tp)
        return start.positions[tp] if moved is None else moved

    def _backlog(self, start: GroupOffset, max_offsets: int | None) -> list[OffsetRange] | None:
        """What there is to read of each owned partition now; of a paused one nothing, of a retry topic what is due.

        None when topics turned out to have been made again, so that positions have to be taken again.
        """
        paused = self._paused.partitions()
        owned = self.member.generation.assignment & self._positioned
        begin = {tp: self._position(start, tp) for tp in owned}
        found = self._log_ends(begin, max_offsets)
        seen, self._ends = self._ends, found.ends
        self._waiting.look(lambda: self.member.client.known_partitions(self._options.reading.subscription), self._ends)
        self._ages.observe(self._ends, time.time() * 1000)
        suspect = found.suspect
        if suspect and rules.made_anew(self._topic_ids, self.member.client.topic_ids({tp.topic for tp in suspect})):
            return None
        begin |= self._go_back(start, {tp: begin[tp] for tp in suspect}, found, seen)
        self.epochs.known |= found.epochs
        if not self._losses.fail:
            begin |= self._skip_expired(start, {tp: begin[tp] for tp, end in self._ends.items() if end > begin[tp]})
        self._learn_stops()
        open_to = {tp: begin[tp] if tp in paused else self._capped(tp, begin[tp]) for tp in self._ends}
        return self._due.due([OffsetRange(tp, begin[tp], end) for tp, end in open_to.items()])

    def _go_back(
        self,
        start: GroupOffset,
        begin: Mapping[TopicPartition, int],
        found: truncation.Look,
        seen: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """New starts of partitions whose logs lost their ends, which had been `seen` there."""
        back = {}
        for tp, position in begin.items():
            told, at = truncation.explained(found, tp, position, self.epochs.known)
            self._losses.report("PARTITION_OFFSET_CHANGED", told, max(0, seen.get(tp, 0) - position))
            back[tp] = self._go_on_at(start, tp, at)
        self.epochs.known |= {tp: found.epochs[tp] for tp in back if tp in found.epochs}
        # What the group has of them is beyond the logs' ends, or of records that have been replaced.
        ahead = {tp: at for tp, at in back.items() if self.committer.in_group.get(tp, at) > at}
        if ahead:
            self.member.check_may_commit()
            self._note_held()
            self.committer.correct(ahead, self.member.client, self.member.generation.id, start.batch)
        return back

    def _log_ends(self, begin: Mapping[TopicPartition, int], max_offsets: int | None) -> truncation.Look:
        """Ends of logs, and what they say of where reading is to begin, after that has been doubted."""
        client = self.member.client
        if begin.keys() == self._ends.keys() and (
            self._watch.nothing_new(self._due.left_s()) or self._ends_suffice(begin, max_offsets)
        ):
            return truncation.Look(self._ends)

        def look() -> truncation.Look:
            found = truncation.look(client, begin, self.epochs.known)
            if self._options.fetching.committed_only:
                found = replace(found, behind=frozenset(self._unstable.lost(client, begin, found.behind)))
            if found.doubtful or found.diverged:
                client.existing(begin, of_any=True)  # which asks for their topics' ids, and leaders, too
            return found

        found = looked_up_until(lambda found: not found.doubtful, look)
        self._looked_at = time.monotonic()
        return found

    def _ends_suffice(self, begin: Mapping[TopicPartition, int], max_offsets: int | None) -> bool:
        """Whether the ends looked up for an earlier batch, not long ago, leave this one as much as it may have."""
        if self._looked_at is None or time.monotonic() - self._looked_at > ENDS_HOLD_S:
            return False
        if self._caps is not None and all(end >= self._caps.get(tp, 0) for tp, end in self._ends.items()):
            return True
        left = self._due.due_as_known([OffsetRange(tp, at, self._capped(tp, at)) for tp, at in begin.items()])
        return max_offsets is not None and sum(r.size for r in left) >= max_offsets

    def _skip_expired(self, start: GroupOffset, begin: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """New starts of partitions whose next records are gone."""
        first = self.member.client.beginning_offsets(begin)
        skipped = {}
        for tp in sorted(tp for tp, offset in first.items() if offset > begin[tp]):
            self._losses.report(
                "COULD_NOT_READ_OFFSET_RANGE",
                f"{tp}: records of offsets {begin[tp]} to {first[tp] - 1} have expired or were deleted",
                first[tp] - begin[tp],
            )
            skipped[tp] = self._go_on_at(start, tp, first[tp])
        return skipped

    def _go_on_at(self, start: GroupOffset, tp: TopicPartition, offset: int) -> int:
        self._events.moved(self.member.generation.id, {tp: (self._position(start, tp), offset, "data loss")})
        self._moved[tp] = offset
        self._due.forget([tp])
        return offset

    def _learn_stops(self) -> None:
        """Where the options say that reading ends; a time is looked for until a record is as new.

        Ends of logs were looked up before: what is read next is older than any such record that came since.
        """
        ending = self._options.reading.ending
        if ending is None:
            return
        tps = rules.spoken_of(ending, self._at_first | set(self._ends), self._options.reading.retry_delays_ms)
        positions_of = {tp: ending.get(tp) for tp in tps if tp not in self._stops}
        # Of a partition made since the query started only a time tells where to stop.
        later = {tp for tp, p in positions_of.items() if tp not in self._at_first and not isinstance(p, AtTime)}
        self._stops |= dict.fromkeys(later, 0)
        wanted = {tp: p for tp, p in positions_of.items() if p is not None and tp not in later}
        self._stops |= looked_up(self.member.client, wanted, timeless=None)

    def _capped(self, tp: TopicPartition, begin: int) -> int:
        caps = [self._stops[tp]] if tp in self._stops else []
        if self._caps is not None:
            caps.append(self._caps.get(tp, begin))
        return max(begin, min([self._ends[tp], *caps]))

    def _end_of(self, start: GroupOffset, ranges: Collection[OffsetRange]) -> GroupOffset:
        generation = self.member.generation
        ends = {r.tp: r.end for r in ranges}
        begin = {tp: self._position(start, tp) for tp in generation.assignment & self._positioned}
        self._by_group -= begin.keys()
        behind = unowned.left_behind(self._unowned(start, begin), self.committer.in_group, self._by_group)
        topics = {tp.topic for tp in (*begin, *behind)}
        return GroupOffset(
            positions={tp: ends.get(tp, offset) for tp, offset in begin.items()},
            reader=self.reader,
            generation=generation.id,
            batch=start.batch + 1,
            topic_ids={topic: topic_id for topic, topic_id in self._topic_ids.items() if topic in topics},
            moved=self.kept.starts(start, begin),
            epochs=self.epochs.of({*begin, *behind}),
            left=behind,
        )

    def _plan(self, batch: Batch, replay: bool) -> None:
        self.committer.plan(batch)
        if batch.generation >= 0:
            self._held = batch.generation
        self._events.planned(batch.generation, batch.end.batch, batch.reads, replay)
        if log.isEnabledFor(logging.INFO):
            log.info(
                "group %s: generation %d: %s batch %d, %d records: %s",
                self.committer.group_id, batch.generation, "replaying" if replay else "planned", batch.end.batch,
                batch.records, " ".join(map(str, batch.reads)) or "nothing",
            )  # fmt: skip


def _made_anew(tp: TopicPartition, offset: int) -> str:
    return f"{tp}: offset {offset}: topic {tp.topic} was deleted and made again, so this offset means another record"
