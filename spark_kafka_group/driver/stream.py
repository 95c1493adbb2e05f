"""One streaming query's driver: what Spark's calls mean for the group.

Spark calls, in this order: ``prepare_available_now`` (if at all), then on a new query ``initial_offset``, on a restart
after an unfinished batch ``plan`` with the logged offsets, and at every trigger ``latest_offset``. Whatever ``start``
``latest_offset`` is called with has succeeded: it is the end of the last batch in Spark's commit log.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Collection, Mapping
from typing import Any

from spark_kafka_group.driver import planner, positions, process
from spark_kafka_group.driver.committer import Batch, Committer
from spark_kafka_group.driver.member import Member
from spark_kafka_group.errors import FencedError, MembershipError, MembershipLostError, OffsetOutOfRangeError
from spark_kafka_group.offsets import (
    EARLIEST,
    LATEST,
    GroupOffset,
    OffsetRange,
    TopicPartition,
    positions_to_json,
)
from spark_kafka_group.options import GROUP, Options
from spark_kafka_group.wire import Committed, GroupClient

log = logging.getLogger(__name__)

DEFAULT_PREFIX = "spark-groupkafka"
UNSETTLED_ROUNDS = 10
BEHIND_LOOKUPS, BEHIND_PAUSE_S = 25, 0.2
"""How often, and how far apart, a log end below our position is looked up again before it is believed."""


class StreamDriver:
    """Plans and commits the micro-batches of one query as a member of a consumer group.

    Not for several threads; Spark's reader process has one. Does no I/O before the reader id is known, except for
    ``prepare_available_now``, and joins the group at the first ``latest_offset`` or ``plan``.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._rules = positions.StartRules(options.starting_offsets or GROUP, options.auto_offset_reset or "latest")
        self._reader: str | None = None
        self._member: Member | None = None
        self._committer: Committer | None = None
        self._is_new_query = True
        self._foreign = False  # the checkpoint is one of Spark's own kafka source
        self._caps: dict[TopicPartition, int] | None = None  # availableNow: ends as they were when the query started
        self._positioned: set[TopicPartition] = set()  # owned partitions whose start has been decided
        self._moved: dict[TopicPartition, int] = {}  # starts that are not the end of the last batch
        self._known: set[TopicPartition] = set()  # partitions that existed when last looked
        self._ends: dict[TopicPartition, int] = {}
        self._slots: dict[TopicPartition, int] = {}
        self._turn = 0
        self._held: int | None = None  # latest generation in which this process took positions or planned

    # Spark's calls

    def initial_offset(self) -> dict[str, Any]:
        """The offset before the first batch of a new query: nothing but the query's new id; no I/O."""
        if self._reader is None:
            self._reader = uuid.uuid4().hex
        return GroupOffset(reader=self._reader).to_json()

    def prepare_available_now(self) -> None:
        """Note the ends of all logs; the query will not read past them. Joins nothing."""
        client = GroupClient(self._options)
        try:
            self._caps = client.end_offsets(client.partitions(self._options.topics))
        finally:
            client.close()

    def latest_offset(self, start_json: dict[str, Any], max_offsets: int | None) -> dict[str, Any]:
        """Commit what `start_json` proves, then plan the next batch; `start_json` itself when there is no new data.

        Raises
        ------
        GroupKafkaError
            Any of its subclasses but ReadError's CorruptRecordError; each ends the query.
        """
        start = GroupOffset.from_json(start_json)
        member = self._joined(start)
        self._succeeded(start)
        backlog = self._settled_backlog(start, member)
        if not any(r.size for r in backlog):
            return start_json
        ranges = planner.share(backlog, max_offsets, self._turn)
        self._turn += 1
        end = self._end_of(start, ranges)
        batch = Batch(end, ranges, member.use())
        self._plan(batch, "planned")
        return end.to_json()

    def plan(self, start_json: dict[str, Any], end_json: dict[str, Any]) -> list[tuple[OffsetRange, ...]]:
        """The tasks of the batch between two offsets, which latest_offset() planned now or before a crash."""
        if start_json == end_json:
            return []
        start, end = GroupOffset.from_json(start_json), GroupOffset.from_json(end_json)
        # The first batch of a query that is replayed starts at an initial offset made just now, with a new id.
        member = self._joined(end)
        ranges = end.ranges(start)
        planned = self._committer.planned if self._committer else None
        if planned is None or planned.end != end:
            if member.ensure():
                self._forget_positions()
            self._plan(Batch(end, ranges, member.use()), "replaying")
        tasks, self._slots = planner.pack(ranges, self._options.records_per_task, self._options.max_tasks, self._slots)
        return tasks

    def commit(self, end_json: dict[str, Any]) -> None:
        """Spark's own word that a batch succeeded; latest_offset() has usually heard of it before."""
        end = GroupOffset.from_json(end_json)
        if self._committer is not None and self._committer.planned is not None:
            self._succeeded(end)

    def report_latest_offset(self) -> dict[str, Any] | None:
        """Ends of the owned partitions' logs as last looked up, for the query's progress."""
        return positions_to_json(self._ends) if self._ends else None

    def stop(self) -> None:
        """Leave the group and close connections. Harmless when repeated or when nothing was started."""
        member, self._member = self._member, None
        if member is not None:
            member.stop()

    # Parts

    def _joined(self, offset: GroupOffset) -> Member:
        """The membership under the reader id that `offset` carries."""
        if self._member is None:
            self._foreign = offset.reader is None
            self._reader = offset.reader or self._reader or uuid.uuid4().hex
            self._is_new_query = not offset.positions
            self._known = set(offset.positions)
            options = self._options
            group_id = options.group_id or f"{DEFAULT_PREFIX}-{self._reader}"
            static_id = options.group_instance_id
            process.prepare()
            self._committer = Committer(group_id)
            self._member = Member(
                options, group_id, static_id or f"groupkafka-{self._reader}", leaves=static_id is None
            )
        return self._member

    def _settled_backlog(self, start: GroupOffset, member: Member) -> list[OffsetRange]:
        """What there is to read, under a generation in which a batch may be planned."""
        for _ in range(UNSETTLED_ROUNDS):
            try:
                if member.ensure():
                    self._forget_positions()
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
                self._forget_positions()
        raise MembershipError(f"the group changed {UNSETTLED_ROUNDS} times while one micro-batch was planned")

    def _succeeded(self, done: GroupOffset) -> None:
        assert self._member is not None
        assert self._committer is not None
        assert self._reader is not None
        planned = self._committer.planned
        if planned is not None and planned.end == done:
            for tp in done.positions:
                self._moved.pop(tp, None)
        if not self._committer.succeeded(done, self._member.client, self._reader):
            self._forget_positions()

    def _forget_positions(self) -> None:
        self._positioned.clear()
        self._moved.clear()

    def _take_positions(self, start: GroupOffset) -> None:
        """Decide where owned partitions start that this member did not own before."""
        assert self._member is not None
        assert self._reader is not None
        client, generation = self._member.client, self._member.generation
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
        checkpoint = {tp: start.positions[tp] for tp in missing if tp in start.positions}
        rest = missing - set(checkpoint)
        unseen = set() if is_new_query else rest - known_before
        starts = positions.restarted(checkpoint, committed, self._reader, self._foreign)
        starts |= positions.new_partitions(unseen, committed)
        starts |= self._rules.new(rest - unseen, committed)
        offsets = self._looked_up({tp: s.offset for tp, s in starts.items()})
        for tp, offset in offsets.items():
            if checkpoint.get(tp) != offset:
                self._moved[tp] = offset
        for tp in sorted(starts):
            conflict = starts[tp].conflict
            if conflict:
                log.warning("group %s: %s", self._options.group_id, conflict)
        corrections = {tp: offsets[tp] for tp, s in starts.items() if s.commit}
        if corrections:
            client.commit(corrections, positions.commit_note(self._reader, generation.id), generation.id)
        self._positioned |= missing
        log.info("starting at %s", " ".join(f"{tp}={offset}" for tp, offset in sorted(offsets.items())))

    def _check_not_replaced(self, committed: Mapping[TopicPartition, Committed]) -> None:
        assert self._member is not None
        assert self._reader is not None
        if self._held is not None:
            generation = positions.replaced_in(committed, self._reader, self._held)
            if generation is not None:
                raise FencedError(
                    f"another process went on with this query, up to generation {generation}, while this one was "
                    f"out of the group: it must not go on"
                )
        self._held = self._member.generation.id

    def _looked_up(self, starts: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        assert self._member is not None
        client = self._member.client
        first = client.beginning_offsets([tp for tp, offset in starts.items() if offset == EARLIEST])
        last = client.end_offsets([tp for tp, offset in starts.items() if offset == LATEST])
        return starts | first | last

    def _position(self, start: GroupOffset, tp: TopicPartition) -> int:
        moved = self._moved.get(tp)
        return start.positions[tp] if moved is None else moved

    def _backlog(self, start: GroupOffset) -> list[OffsetRange]:
        """What there is to read of each owned partition now."""
        assert self._member is not None
        owned = self._member.generation.assignment
        begin = {tp: self._position(start, tp) for tp in owned}
        for attempt in range(BEHIND_LOOKUPS):
            self._ends = self._member.client.end_offsets(owned)
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
        assert self._member is not None
        generation = self._member.generation
        ends = {r.tp: r.end for r in ranges}
        begin = {tp: self._position(start, tp) for tp in generation.assignment}
        return GroupOffset(
            positions={tp: ends.get(tp, offset) for tp, offset in begin.items()},
            reader=self._reader,
            generation=generation.id,
            moved={tp: offset for tp, offset in begin.items() if start.positions.get(tp) != offset},
        )

    def _plan(self, batch: Batch, verb: str) -> None:
        assert self._committer is not None
        assert self._member is not None
        self._committer.plan(batch)
        self._held = batch.generation
        log.info(
            "group %s: generation %d: %s %d records: %s",
            self._committer.group_id, batch.generation, verb, batch.records, " ".join(map(str, batch.ranges)),
        )  # fmt: skip
