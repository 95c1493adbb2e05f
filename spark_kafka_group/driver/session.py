"""A query's life in its group: what is planned, under which generation, from which positions, and what is committed."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping

from spark_kafka_group.driver import planner, positions
from spark_kafka_group.driver.committer import Batch, Committer
from spark_kafka_group.driver.member import Member
from spark_kafka_group.errors import FencedError, MembershipError, MembershipLostError, OffsetOutOfRangeError
from spark_kafka_group.offsets import EARLIEST, LATEST, GroupOffset, OffsetRange, TopicPartition, positions_to_json
from spark_kafka_group.options import GROUP, Options
from spark_kafka_group.wire import Committed

log = logging.getLogger(__name__)

DEFAULT_PREFIX = "spark-groupkafka"
UNSETTLED_ROUNDS = 10
BEHIND_LOOKUPS, BEHIND_PAUSE_S = 25, 0.2
"""How often, and how far apart, a log end below our position is looked up again before it is believed."""


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
        group_id = options.group_id or f"{DEFAULT_PREFIX}-{reader}"
        static_id = options.group_instance_id
        self.reader = reader
        self.committer = Committer(group_id)
        self.member = Member(options, group_id, static_id or f"groupkafka-{reader}", leaves=static_id is None)
        self._options = options
        self._rules = positions.StartRules(options.starting_offsets or GROUP, options.auto_offset_reset or "latest")
        self._caps = caps
        self._foreign = first.reader is None  # the checkpoint is one of Spark's own kafka source
        self._is_new_query = not first.positions
        self._known = set(first.positions)  # partitions that existed when last looked
        self._positioned: set[TopicPartition] = set()  # owned partitions whose start has been decided
        self._moved: dict[TopicPartition, int] = {}  # starts that are not the end of the last batch
        self._ends: dict[TopicPartition, int] = {}
        self._slots: dict[TopicPartition, int] = {}
        self._turn = 0
        self._held: int | None = None  # latest generation in which this process took positions or planned

    def next_batch(self, start: GroupOffset, max_offsets: int | None) -> GroupOffset | None:
        """Commit what `start` proves, then plan the batch after it; None when there is no new data."""
        self.succeeded(start)
        backlog = self._settled_backlog(start)
        if not any(r.size for r in backlog):
            return None
        ranges = planner.share(backlog, max_offsets, self._turn)
        self._turn += 1
        end = self._end_of(start, ranges)
        self._plan(Batch(end, ranges, self.member.use()), "planned")
        return end

    def tasks(self, start: GroupOffset, end: GroupOffset) -> list[tuple[OffsetRange, ...]]:
        """The tasks of the batch between two offsets, which was planned now or before a crash."""
        ranges = end.ranges(start)
        planned = self.committer.planned
        if planned is None or planned.end != end:
            if self.member.ensure():
                self._positioned.clear()
            self._plan(Batch(end, ranges, self.member.use()), "replaying")
        options = self._options
        tasks, self._slots = planner.pack(ranges, options.records_per_task, options.max_tasks, self._slots)
        return tasks

    def succeeded(self, done: GroupOffset) -> None:
        """Everything up to `done` has succeeded: commit it if that has not been done."""
        planned = self.committer.planned
        if planned is not None and planned.end == done:
            for tp in done.positions:
                self._moved.pop(tp, None)
        if not self.committer.succeeded(done, self.member.client, self.reader):
            self._positioned.clear()

    def log_ends(self) -> dict[str, dict[str, int]] | None:
        """Ends of the owned partitions' logs as last looked up; None before that."""
        return positions_to_json(self._ends) if self._ends else None

    # Parts

    def _settled_backlog(self, start: GroupOffset) -> list[OffsetRange]:
        """What there is to read, under a generation in which a batch may be planned."""
        member = self.member
        for _ in range(UNSETTLED_ROUNDS):
            try:
                if member.ensure():
                    self._positioned.clear()
                self._take_positions(start)
                backlog = self._backlog(start)
                if not any(r.size for r in backlog):
                    return backlog
                owned = member.generation.assignment
                member.next_generation()
                if member.generation.assignment == owned:
                    return backlog
                # Somebody joined or left just now: what was looked up is no longer what this member owns.
            except MembershipLostError as error:
                log.warning("%s; joining again", error)
                self._positioned.clear()
        raise MembershipError(f"the group changed {UNSETTLED_ROUNDS} times while one micro-batch was planned")

    def _take_positions(self, start: GroupOffset) -> None:
        """Decide where owned partitions start that this member did not own before."""
        client, generation = self.member.client, self.member.generation
        self._positioned &= generation.assignment
        self._moved = {tp: offset for tp, offset in self._moved.items() if tp in generation.assignment}
        missing = generation.assignment - self._positioned
        known_before = self._known
        self._known = known_before | client.known_partitions(self._options.topics)
        is_new_query, self._is_new_query = self._is_new_query, False
        if not missing:
            return
        committed = client.committed(missing)
        self._check_not_replaced(committed)
        checkpoint = {tp: self._position(start, tp) for tp in missing if tp in self._moved or tp in start.positions}
        rest = missing - set(checkpoint)
        unseen = set() if is_new_query else rest - known_before
        starts = positions.restarted(checkpoint, committed, self.reader, self._foreign)
        starts |= positions.new_partitions(unseen, committed)
        starts |= self._rules.new(rest - unseen, committed)
        offsets = self._looked_up({tp: s.offset for tp, s in starts.items()})
        moved = self._moved | offsets
        self._moved = {tp: offset for tp, offset in moved.items() if start.positions.get(tp) != offset}
        for tp in sorted(starts):
            conflict = starts[tp].conflict
            if conflict:
                log.warning("group %s: %s", self.committer.group_id, conflict)
        corrections = {tp: offsets[tp] for tp, s in starts.items() if s.commit and tp in start.positions}
        if corrections:
            client.commit(corrections, positions.commit_note(self.reader, generation.id), generation.id)
        self._positioned |= missing
        log.info("starting at %s", " ".join(f"{tp}={offset}" for tp, offset in sorted(offsets.items())))

    def _check_not_replaced(self, committed: Mapping[TopicPartition, Committed]) -> None:
        if self._held is not None:
            generation = positions.replaced_in(committed, self.reader, self._held)
            if generation is not None:
                raise FencedError(
                    f"another process went on with this query, up to generation {generation}, while this one was "
                    f"out of the group: it must not go on"
                )
        self._held = self.member.generation.id

    def _looked_up(self, starts: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        client = self.member.client
        first = client.beginning_offsets([tp for tp, offset in starts.items() if offset == EARLIEST])
        last = client.end_offsets([tp for tp, offset in starts.items() if offset == LATEST])
        return starts | first | last

    def _position(self, start: GroupOffset, tp: TopicPartition) -> int:
        moved = self._moved.get(tp)
        return start.positions[tp] if moved is None else moved

    def _backlog(self, start: GroupOffset) -> list[OffsetRange]:
        """What there is to read of each owned partition now."""
        owned = self.member.generation.assignment
        begin = {tp: self._position(start, tp) for tp in owned}
        for attempt in range(BEHIND_LOOKUPS):
            self._ends = self.member.client.end_offsets(owned)
            behind = sorted(tp for tp in owned if self._ends[tp] < begin[tp])
            if not behind:
                return [OffsetRange(tp, begin[tp], self._capped(tp, begin[tp])) for tp in owned]
            # A leader just elected may not know yet how far its log is committed.
            if attempt < BEHIND_LOOKUPS - 1:
                time.sleep(BEHIND_PAUSE_S)
        tp = behind[0]
        raise OffsetOutOfRangeError(
            tp.topic, tp.partition, begin[tp],
            f"the log ends at {self._ends[tp]}: the topic was deleted and made again, or its end was lost. "
            f"Start with a new checkpoint, or move the group's offset with kafka-consumer-groups --reset-offsets",
        )  # fmt: skip

    def _capped(self, tp: TopicPartition, begin: int) -> int:
        end = self._ends[tp]
        return end if self._caps is None else max(begin, min(end, self._caps.get(tp, begin)))

    def _end_of(self, start: GroupOffset, ranges: Collection[OffsetRange]) -> GroupOffset:
        generation = self.member.generation
        ends = {r.tp: r.end for r in ranges}
        begin = {tp: self._position(start, tp) for tp in generation.assignment}
        return GroupOffset(
            positions={tp: ends.get(tp, offset) for tp, offset in begin.items()},
            reader=self.reader,
            generation=generation.id,
            moved={tp: offset for tp, offset in begin.items() if start.positions.get(tp) != offset},
        )

    def _plan(self, batch: Batch, verb: str) -> None:
        self.committer.plan(batch)
        self._held = batch.generation
        log.info(
            "group %s: generation %d: %s %d records: %s",
            self.committer.group_id, batch.generation, verb, batch.records, " ".join(map(str, batch.ranges)),
        )  # fmt: skip
