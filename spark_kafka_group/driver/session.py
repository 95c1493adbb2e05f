"""A query's life in its group: what is planned, under which generation, from which positions, and what is committed."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from typing import Any

from spark_kafka_group.driver import planner, positions
from spark_kafka_group.driver.ages import BacklogAges
from spark_kafka_group.driver.committer import Batch, Committer
from spark_kafka_group.driver.events import EventLog
from spark_kafka_group.driver.hooks import Hooks
from spark_kafka_group.driver.member import Joined, Member
from spark_kafka_group.driver.metrics import Metrics
from spark_kafka_group.driver.pausing import Paused
from spark_kafka_group.driver.progress import Progress
from spark_kafka_group.driver.unmanaged import Unmanaged
from spark_kafka_group.errors import (
    BrokerError,
    CommitError,
    FencedError,
    MembershipError,
    MembershipLostError,
    OffsetOutOfRangeError,
)
from spark_kafka_group.notes import group_id_of, instance_id_of, is_own
from spark_kafka_group.offsets import (
    EARLIEST,
    GROUP_KEY,
    LATEST,
    GroupOffset,
    OffsetRange,
    TopicPartition,
)
from spark_kafka_group.options import GROUP, Options
from spark_kafka_group.wire import Committed

log = logging.getLogger(__name__)

UNSETTLED_ROUNDS = 10
BEHIND_LOOKUPS, BEHIND_PAUSE_S = 25, 0.2
"""How often, and how far apart, a log end below our position is looked up again before it is believed."""
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
    """

    def __init__(
        self, options: Options, reader: str, first: GroupOffset, caps: Mapping[TopicPartition, int] | None
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
        self._looked = False  # at the ends of logs, at least once
        self._ages = BacklogAges()
        self._slots: dict[TopicPartition, int] = {}
        self._turn = 0
        self._held: int | None = None  # latest generation in which this process took positions or planned

    def next_batch(self, start: GroupOffset, max_offsets: int | None) -> GroupOffset | None:
        """Commit what `start` proves, then plan the batch after it; None when there is no new data."""
        self.succeeded(start)
        self._start = start
        backlog = self._settled_backlog(start)
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
        planned = self.committer.planned
        if planned is None or planned.end != end:
            self._start = start
            self._be_member()
            anew = positions.made_anew(end.topic_ids, self.member.client.topic_ids({r.tp.topic for r in ranges}))
            for r in ranges:
                if r.tp.topic in anew:
                    raise _made_anew(r.tp, r.start)
            self._plan(Batch(end, ranges, self.member.use(), self._elsewhere(ranges)), replay=True)
        tasks, self._slots = planner.tasks(ranges, self._options, self._slots)
        return tasks

    def succeeded(self, done: GroupOffset) -> None:
        """Everything up to `done` has succeeded: commit it if that has not been done."""
        planned = self.committer.planned
        if planned is not None and planned.end == done:
            self._proven(done)
            if planned.ends:
                self.member.check_may_commit()
        if not self.committer.succeeded(done, self.member.client):
            self._positioned.clear()

    def settle_idly(self, patience_ms: float) -> None:
        """Between Spark's calls: take part in a rebalance if no batch runs, so that the group need not wait.

        A batch that is planned and not yet proven keeps the group waiting, unless its offsets are in the group already.
        """
        if not self.member.unsettled():
            return
        planned = self.committer.planned
        if planned is not None:
            try:
                if not self.committer.proven_by_group(self.member.client):
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
        if not self._looked:
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

    def stop(self) -> None:
        """Leave the group and close connections. Never hangs on a dead broker."""
        try:
            if self.member.hands_over():
                self._hand_over()
            self._events.close(self._held if self._held is not None else -1)
        finally:
            self.member.stop()

    # Parts

    def _proven(self, end: GroupOffset) -> None:
        """From now on partitions stand where this batch ended."""
        for tp in end.positions:
            self._moved.pop(tp, None)
        self._start = end

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

    def _be_member(self, patience_ms: float | None = None) -> None:
        """Be a member of a settled group, if it settles in time."""
        if self.member.asked_to_rejoin():
            self._hand_over()
        self._entered(self.member.ensure(patience_ms))

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

    def _settled_backlog(self, start: GroupOffset) -> list[OffsetRange]:
        """What there is to read, under a generation in which a batch may be planned."""
        member = self.member
        for _ in range(UNSETTLED_ROUNDS):
            try:
                self._be_member()
                self._take_positions(start)
                backlog = self._backlog(start)
                if not any(r.size for r in backlog):
                    return backlog
                if self._unread() and member.hears_of_rebalance():
                    continue  # or it would join the rebalance unknowingly, with nothing handed over
                owned = member.generation.assignment
                joined = member.next_generation()
                if joined is Joined.SAME or member.generation.unbroken == owned == member.generation.assignment:
                    return backlog
                # Somebody joined or left just now: what was looked up is no longer what this member owns.
                self._entered(joined)
            except MembershipLostError as error:
                log.warning("%s; joining again", error)
                self._positioned.clear()
        raise MembershipError(f"the group changed {UNSETTLED_ROUNDS} times while one micro-batch was planned")

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
        corrections = {tp: offsets[tp] for tp in wrong if tp in offsets}
        if corrections:
            self.member.check_may_commit()
        self.committer.correct(corrections, client, generation.id, start.batch)
        self._positioned |= set(offsets)
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
            self._looked = True
            self._ages.observe(self._ends, time.time() * 1000)
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
        self._held = batch.generation
        self._events.planned(batch.generation, batch.end.batch, batch.ranges, replay)
        log.info(
            "group %s: generation %d: %s batch %d, %d records: %s",
            self.committer.group_id, batch.generation, "replaying" if replay else "planned", batch.end.batch,
            batch.records, " ".join(map(str, batch.ranges)),
        )  # fmt: skip


def _made_anew(tp: TopicPartition, offset: int) -> OffsetOutOfRangeError:
    return OffsetOutOfRangeError(
        tp.topic, tp.partition, offset,
        f"topic {tp.topic} was deleted and made again, so this offset means another record. {START_AGAIN}",
    )  # fmt: skip
