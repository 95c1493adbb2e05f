"""A query's life in its group: what is planned, under which generation, from which positions, and what is committed."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from spark_kafka_group.driver import planner, positions
from spark_kafka_group.driver.committer import Batch, Committer
from spark_kafka_group.driver.events import EventLog
from spark_kafka_group.driver.hooks import Hooks
from spark_kafka_group.driver.member import Joined, Member
from spark_kafka_group.driver.metrics import Metrics
from spark_kafka_group.driver.pausing import Paused
from spark_kafka_group.driver.siblings import Siblings
from spark_kafka_group.driver.unbegun import Unbegun
from spark_kafka_group.driver.unmanaged import Unmanaged
from spark_kafka_group.errors import (
    BrokerError,
    CommitError,
    FencedError,
    MembershipError,
    MembershipLostError,
    OffsetOutOfRangeError,
)
from spark_kafka_group.notes import group_id_of, instance_id_of, is_own, writer_of
from spark_kafka_group.offsets import (
    EARLIEST,
    GROUP_KEY,
    LATEST,
    GroupOffset,
    OffsetRange,
    TopicPartition,
    positions_to_json,
)
from spark_kafka_group.options import GROUP, Options
from spark_kafka_group.wire import Committed

log = logging.getLogger(__name__)

UNSETTLED_ROUNDS = 10
BEHIND_LOOKUPS, BEHIND_PAUSE_S = 25, 0.2
"""How often, and how far apart, a log end below our position is looked up again before it is believed."""
SIBLING_SLACK_MS = 2_000
"""So much longer than until the next heartbeat a source waits for others of its query, which may be waiting for it."""
SHARE_PAUSE_S = 0.05
START_AGAIN = (
    "Start with a new checkpoint, or stop the query and move the group's offset with "
    "kafka-consumer-groups --reset-offsets"
)


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
        group_id = group_id_of(options.group_id, reader)
        self.reader = reader
        self.metrics = Metrics()
        hooks = Hooks(options, self.metrics)
        self._events = EventLog(options.event_log, group_id, reader)
        self.committer = Committer(group_id, reader, hooks, self._events, self.metrics)
        self.member: Member | Unmanaged
        if options.subscription.manual:
            self.member = Unmanaged(options, group_id, reader, self._events)
        else:
            static_id = instance_id_of(options.group_instance_id, reader)
            self.member = Member(options, group_id, static_id, hooks, self._events, self.metrics)
        self._options = options
        self._rules = positions.StartRules(options.starting_offsets or GROUP, options.auto_offset_reset or "latest")
        self._unbegun = Unbegun(self.committer, self.member.client, reader)
        self._siblings = Siblings(shared, group_id, reader, options.subscription)
        self._unsettled_since: float | None = None
        self._paused = Paused(options.paused, options.pause_file)
        self._caps = caps
        self._foreign = first.reader is None  # the checkpoint is one of Spark's own kafka source
        self._topic_ids = dict(first.topic_ids)
        self._is_new_query = not first.positions
        self._is_restart = True  # until positions have been taken for the first time
        self._known = set(first.positions)  # partitions that existed when last looked
        self._start = first  # what is proven, as last told
        self._positioned: set[TopicPartition] = set()  # owned partitions whose start has been decided
        self._moved: dict[TopicPartition, int] = {}  # starts that are not the end of the last batch
        self._ends: dict[TopicPartition, int] = {}
        self._slots: dict[TopicPartition, int] = {}
        self._turn = 0
        self._held: int | None = None  # latest generation in which this process took positions or planned

    def next_batch(self, start: GroupOffset, max_offsets: int | None) -> GroupOffset | None:
        """Commit what `start` proves, then plan the batch after it; None when there is no new data."""
        self.succeeded(start)
        self._discard_unbegun()
        self._start = start
        backlog = self._settled_backlog(start)
        if backlog is None:
            self._unsettled_since = self._unsettled_since or time.monotonic()
            # Without it a query with availableNow might end here, with records left to read.
            in_doubt = self._caps is not None and start.reader is not None
            return replace(start, batch=start.batch + 1, moved={}) if in_doubt else None
        self._unsettled_since = None
        if not any(r.size for r in backlog):
            return None
        ranges = planner.share(backlog, max_offsets, self._turn)
        self._turn += 1
        end = self._end_of(start, ranges)
        self._plan(Batch(end, ranges, self.member.use()), replay=False)
        return end

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
        batch = replace(self.committer.planned or planned, begun=True)
        self.committer.plan(batch)
        return batch

    def _again(self, start: GroupOffset, end: GroupOffset, ranges: list[OffsetRange]) -> Batch:
        """The batch that was planned before a crash, as it was, but for what had been left out of it."""
        self._start = start
        tps = [r.tp for r in ranges]
        # Before joining: while a join waits in the broker, the coordinator's connection is deaf.
        committed = {} if self._options.subscription.manual else self.member.client.committed(tps)
        left_out = frozenset(self._unbegun.learn(committed, end.batch))
        joined = self._be_member(self._patience_ms()) is not Joined.NOT_YET
        anew = positions.made_anew(end.topic_ids, self.member.client.topic_ids({tp.topic for tp in tps}))
        for r in ranges:
            if r.tp.topic in anew:
                raise _made_anew(r.tp, r.start)
        if joined:
            batch = Batch(end, ranges, self.member.use(), self._elsewhere(ranges), left_out, begun=True)
        else:
            # Whoever holds up the group may wait for this very batch. The next call joins, and commits what it read.
            batch = Batch(end, ranges, -1, frozenset(tps), left_out, begun=True)
        self._plan(batch, replay=True)
        return batch

    def succeeded(self, done: GroupOffset) -> None:
        """Everything up to `done` has succeeded: commit it if that has not been done."""
        planned = self.committer.planned
        if planned is not None and planned.end == done:
            if self._unbegun.aside:  # Spark had no need of its rows
                planned = self._give_up()
            self._proven(done)
            if planned.ends:
                self.member.check_may_commit()
        if not self.committer.succeeded(done, self.member.client):
            self._positioned.clear()

    def settle_idly(self, patience_ms: float) -> None:
        """Between Spark's calls: take part in a rebalance if no batch runs, so that the group need not wait.

        A batch that is planned and not yet proven keeps the group waiting, unless its offsets are in the group already,
        or it has not begun, and another source of the same query may be the one that waits.
        """
        planned = self.committer.planned
        if planned is not None and not planned.begun and self._siblings.any():
            # Spark is held up until the other source has joined: this one does not wait for the next heartbeat.
            asked = self._unbegun.aside or self.member.hears_of_rebalance()
            if not (asked and self._unbegun.set_aside(planned)):
                return
        elif not self.member.unsettled():
            return
        elif planned is not None and planned.ends:
            try:
                if not self.committer.proven_by_group(self.member.client):
                    return
            except BrokerError as error:
                log.info("group %s: not known whether the batch is committed: %s", self.committer.group_id, error)
                return
            self._proven(planned.end)
        self._be_member(patience_ms)

    def progress(self) -> dict[str, Any] | None:
        """For the query's progress: ends of the owned partitions' logs as last looked up, and what the group knows."""
        if not self._ends:
            return None
        generation, committed = self.member.generation, self.committer.in_group
        owned = {tp: committed[tp] for tp in generation.assignment if tp in committed}
        group = {
            "group": self.committer.group_id,
            "member": generation.member_id,
            "role": "leader" if generation.leader else "follower",
            "generation": generation.id,
            "strategy": generation.strategy,
            "lag": sum(max(0, self._ends[tp] - owned.get(tp, 0)) for tp in self._ends),
            "committed": positions_to_json(owned),
        }
        return positions_to_json(self._ends) | {GROUP_KEY: group | self.metrics.to_json()}

    def stop(self) -> None:
        """Leave the group and close connections. Never hangs on a dead broker."""
        try:
            if self.member.hands_over():
                self._hand_over()
            self._events.close(self._held if self._held is not None else -1)
        finally:
            self.member.stop()
            self._siblings.close()

    # Parts

    def _proven(self, end: GroupOffset) -> None:
        """From now on partitions stand where this batch ended."""
        for tp in end.positions:
            self._moved.pop(tp, None)
        self._unbegun.left_out = {tp: at for tp, at in self._unbegun.left_out.items() if tp in end.positions}
        self._start = end

    def _give_up(self) -> Batch:
        """Nothing of the planned batch, which gave way to a rebalance that is not over, is going to be read."""
        planned = self.committer.planned
        assert planned is not None, "nothing is aside without a batch"
        batch = self._unbegun.given_up(planned)
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
        too_long = since is not None and time.monotonic() - since > self._options.max_poll_interval_ms / 1000
        if too_long or not self._siblings.any():
            return None
        return self._options.heartbeat_interval_ms + SIBLING_SLACK_MS

    def _elsewhere(self, ranges: Collection[OffsetRange]) -> frozenset[TopicPartition]:
        """Of a batch that is read again, the partitions that are not this member's any more, or that others moved."""
        owned = self.member.generation.assignment
        committed = self.member.client.committed([r.tp for r in ranges])
        elsewhere = {r.tp for r in ranges if r.tp not in owned}
        for r in ranges:
            group = committed.get(r.tp)
            if group is not None and group.offset != r.start and not is_own(group.metadata, self.reader):
                elsewhere.add(r.tp)
        if elsewhere:
            log.warning(
                "group %s: rows of %s come again, as the checkpoint says, and are not committed: others have gone on",
                self.committer.group_id, " ".join(map(str, sorted(elsewhere))),
            )  # fmt: skip
        return frozenset(elsewhere)

    def _be_member(self, patience_ms: float | None = None) -> Joined:
        """Be a member of a settled group, if it settles in time; a planned batch that gave way goes on."""
        if self.member.asked_to_rejoin():
            self._hand_over()
        joined = self.member.ensure(patience_ms)
        self._entered(joined)
        planned = self.committer.planned
        if joined is not Joined.NOT_YET and planned is not None and self._unbegun.aside:
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
        """
        offsets = {tp: self._position(self._start, tp) for tp in self._unread()}
        try:
            self.committer.correct(offsets, self.member.client, self.member.generation.id, self._start.batch)
            self._held = max(self._held or 0, self.member.generation.id)
        except (MembershipLostError, CommitError) as error:
            log.warning("group %s: positions could not be handed over: %s", self.committer.group_id, error)

    def _unread(self) -> list[TopicPartition]:
        """Partitions that exist, with a position that the group does not have."""
        in_group = self.committer.in_group
        owned = self._positioned & self.member.generation.assignment
        unread = [tp for tp in owned if in_group.get(tp) != self._position(self._start, tp)]
        if not unread:
            return unread
        existing = self.member.client.known_partitions(self._options.subscription)
        return [tp for tp in unread if tp in existing]

    def _settled_backlog(self, start: GroupOffset) -> list[OffsetRange] | None:
        """What there is to read, under a generation in which a batch may be planned; None while others hold it up."""
        member = self.member
        for _ in range(UNSETTLED_ROUNDS):
            try:
                if self._be_member(self._patience_ms()) is Joined.NOT_YET or not self._has_its_share():
                    return None
                self._take_positions(start)
                backlog = self._backlog(start)
                if not any(r.size for r in backlog):
                    return backlog
                if self._unread() and member.hears_of_rebalance():
                    continue  # or it would join the rebalance unknowingly, with nothing handed over
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
            topics = {tp.topic for tp in self.member.client.known_partitions(self._options.subscription)}
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
        self._moved = {tp: offset for tp, offset in self._moved.items() if tp in generation.assignment}
        anew = self._check_topics(start)
        known_before = {tp for tp in self._known if tp.topic not in anew}
        if self._is_restart:
            # Later ones are known when they have been read: others may own a new partition for a while, or nobody.
            self._known |= client.known_partitions(self._options.subscription)
        missing = generation.assignment - self._positioned
        committed = self._committed(missing) if missing else {}
        if missing:
            self._check_not_replaced(committed)
        self._unbegun.learn(committed, start.batch)
        in_group = self.committer.in_group
        untouched = frozenset(tp for tp, group in committed.items() if in_group.get(tp) == group.offset)
        starts = self._starts(missing, known_before, committed, untouched, start)
        is_restart, self._is_new_query, self._is_restart = self._is_restart, False, False
        if not missing:
            return
        self.committer.agreed(missing, committed)
        offsets = self._looked_up({tp: s.offset for tp, s in starts.items()})
        moved = self._moved | offsets
        self._moved = {tp: offset for tp, offset in moved.items() if start.positions.get(tp) != offset}
        for tp in sorted(starts):
            if starts[tp].conflict:
                log.warning("group %s: %s", self.committer.group_id, starts[tp].conflict)
        if is_restart:
            self.metrics.offset_conflicts += sum(s.conflict is not None for s in starts.values())
        # The group's own offset needs no reason, unless it contradicts the checkpoint.
        reasoned = {tp: s for tp, s in starts.items() if tp in offsets and (s.conflict or s.why != positions.BY_GROUP)}
        if reasoned:
            self._events.moved(
                generation.id, {tp: (start.positions.get(tp), offsets[tp], s.why) for tp, s in reasoned.items()}
            )
        wrong = {tp for tp, s in starts.items() if s.commit and (tp in start.positions or tp in committed)}
        writers = {tp: writer_of(group.metadata) for tp, group in committed.items()}
        # From now on batches do not go without them.
        wrong |= {tp for tp, w in writers.items() if w and w.reader == self.reader and w.without is not None}
        corrections = {tp: offsets[tp] for tp in wrong if tp in offsets}
        if corrections:
            self.member.check_may_commit()
        self.committer.correct(corrections, client, generation.id, start.batch)
        self._positioned |= set(offsets)
        for tp in offsets:
            self._unbegun.left_out.pop(tp, None)
        self._known |= set(offsets)
        log.info("starting at %s", " ".join(f"{tp}={offset}" for tp, offset in sorted(offsets.items())))

    def _committed(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, Committed]:
        """What the group says of `tps`; not asked where it has no say."""
        if self._is_new_query and self._options.subscription.manual and self._rules.starting_offsets != GROUP:
            return {}  # so that assign with explicit offsets needs no rights on a group before its first commit
        return self.member.client.committed(tps)

    def _starts(
        self,
        missing: Collection[TopicPartition],
        known_before: Collection[TopicPartition],
        committed: Mapping[TopicPartition, Committed],
        untouched: frozenset[TopicPartition],
        start: GroupOffset,
    ) -> dict[TopicPartition, positions.Start]:
        kept = {tp: self._position(start, tp) for tp in missing if tp in self._moved or tp in start.positions}
        kept |= {tp: offset for tp, offset in self._unbegun.left_out.items() if tp in missing}
        rest = set(missing) - set(kept)
        checkpoint = positions.Checkpoint(kept, self.reader, start.generation, self._foreign, untouched)
        policy = self._options.on_offset_conflict if self._is_restart else "auto"
        starts = positions.restarted(checkpoint, committed, policy)
        if self._is_new_query:
            return starts | self._rules.new(rest, committed)
        unseen = rest - set(known_before)
        return starts | positions.new_partitions(unseen, committed) | self._rules.gained(rest - unseen, committed)

    def _check_topics(self, start: GroupOffset) -> list[str]:
        """Topics that were deleted and made again: offsets of the old one mean other records.

        A group's offset that somebody wrote after that is the way out, so it is looked at before this is an error.
        """
        owned = self.member.generation.assignment
        now = self.member.client.topic_ids({tp.topic for tp in owned})
        anew = positions.made_anew(self._topic_ids, now)
        if anew:
            concerned = sorted(tp for tp in owned if tp.topic in anew and (tp in start.positions or tp in self._moved))
            committed = self._committed(concerned)
            for tp in concerned:
                if tp not in committed or is_own(committed[tp].metadata, self.reader):
                    raise _made_anew(tp, self._position(start, tp))
            self._positioned -= set(concerned)
        self._topic_ids |= now
        return anew

    def _check_not_replaced(self, committed: Mapping[TopicPartition, Committed]) -> None:
        if self._held is not None and not self._options.subscription.manual:
            generation = positions.replaced_in(committed, self.reader, self._held)
            if generation is not None:
                raise FencedError(
                    f"another process went on with this query, up to generation {generation}, while this one was "
                    f"out of the group: it must not go on"
                )
        self._held = self.member.generation.id

    def _looked_up(self, starts: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """`starts` with the ends of logs filled in; those of topics just deleted are not there."""
        client = self.member.client
        first = client.beginning_offsets([tp for tp, offset in starts.items() if offset == EARLIEST])
        last = client.end_offsets([tp for tp, offset in starts.items() if offset == LATEST])
        found = starts | first | last
        return {tp: offset for tp, offset in found.items() if offset not in (EARLIEST, LATEST)}

    def _position(self, start: GroupOffset, tp: TopicPartition) -> int:
        moved = self._moved.get(tp)
        return start.positions[tp] if moved is None else moved

    def _backlog(self, start: GroupOffset) -> list[OffsetRange]:
        """What there is to read of each owned partition now; of a paused one nothing."""
        paused = self._paused.partitions()
        owned = self.member.generation.assignment & self._positioned
        begin = {tp: self._position(start, tp) for tp in owned}
        for attempt in range(BEHIND_LOOKUPS):
            self._ends = self.member.client.end_offsets(owned)
            behind = sorted(tp for tp, end in self._ends.items() if end < begin[tp])
            if not behind:
                open_to = {tp: begin[tp] if tp in paused else self._capped(tp, begin[tp]) for tp in self._ends}
                return [OffsetRange(tp, begin[tp], end) for tp, end in open_to.items()]
            # A leader just elected may not know yet how far its log is committed.
            if attempt < BEHIND_LOOKUPS - 1:
                time.sleep(BEHIND_PAUSE_S)
        tp = behind[0]
        raise OffsetOutOfRangeError(
            tp.topic, tp.partition, begin[tp],
            f"the log ends at {self._ends[tp]}: the topic was deleted and made again, or its end was lost. "
            f"{START_AGAIN}",
        )  # fmt: skip

    def _capped(self, tp: TopicPartition, begin: int) -> int:
        end = self._ends[tp]
        return end if self._caps is None else max(begin, min(end, self._caps.get(tp, begin)))

    def _end_of(self, start: GroupOffset, ranges: Collection[OffsetRange]) -> GroupOffset:
        generation = self.member.generation
        ends = {r.tp: r.end for r in ranges}
        begin = {tp: self._position(start, tp) for tp in generation.assignment & self._positioned}
        topics = {tp.topic for tp in begin}
        return GroupOffset(
            positions={tp: ends.get(tp, offset) for tp, offset in begin.items()},
            reader=self.reader,
            generation=generation.id,
            batch=start.batch + 1,
            topic_ids={topic: topic_id for topic, topic_id in self._topic_ids.items() if topic in topics},
            moved={tp: offset for tp, offset in begin.items() if start.positions.get(tp) != offset},
        )

    def _plan(self, batch: Batch, replay: bool) -> None:
        self.committer.plan(batch)
        if batch.generation >= 0:
            self._held = batch.generation
        self._events.planned(batch.generation, batch.end.batch, batch.reads, replay)
        log.info(
            "group %s: generation %d: %s batch %d, %d records: %s",
            self.committer.group_id, batch.generation, "replaying" if replay else "planned", batch.end.batch,
            batch.records, " ".join(map(str, batch.reads)) or "nothing",
        )  # fmt: skip


def _made_anew(tp: TopicPartition, offset: int) -> OffsetOutOfRangeError:
    return OffsetOutOfRangeError(
        tp.topic, tp.partition, offset,
        f"topic {tp.topic} was deleted and made again, so this offset means another record. {START_AGAIN}",
    )  # fmt: skip
