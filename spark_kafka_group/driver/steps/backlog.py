"""The backlog: ranges that may be read of each owned partition, and when it is worth looking up their ends again.

Partitions are left out while option pausePartitions or a file names them. Records before which a query stands may be
gone: logs lose their ends, and records expire.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from spark_kafka_group.driver.backlog.absent import AwaitedTopics, LeaderlessPartitions
from spark_kafka_group.driver.backlog.end_bounds import BeyondLastStable, EndBounds
from spark_kafka_group.driver.backlog.long_poll import LongPoll
from spark_kafka_group.driver.backlog.retry_delays import RetryDelays
from spark_kafka_group.driver.positions import rules, truncation
from spark_kafka_group.driver.positions.lookup import looked_up_until
from spark_kafka_group.driver.query import Query
from spark_kafka_group.driver.reporting.query_metrics import BacklogAges
from spark_kafka_group.options import parsing
from spark_kafka_group.values.files import read_file
from spark_kafka_group.values.offsets import GroupOffset, OffsetRange, TopicPartition

log = logging.getLogger(__name__)


class PausedPartitions:
    """Partitions of which nothing is read for now.

    `always`: those of option pausePartitions.
    `path`: file of option pauseFile. While it does not exist it names none; a file that cannot be read is a warning,
        and the partitions that it named before stay paused.
    """

    def __init__(self, always: frozenset[TopicPartition], path: str | None) -> None:
        self._always = always
        self._path = Path(path) if path is not None else None
        self._seen: bytes | None = None
        self._named: frozenset[TopicPartition] = frozenset()

    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions that are paused now."""
        if self._path is not None:
            self._look(self._path)
        return self._always | self._named

    def _look(self, path: Path) -> None:
        try:
            raw = read_file(path)
        except FileNotFoundError:
            raw = b"{}"
        except OSError as error:
            log.warning("pauseFile (%s) cannot be read: %s", path, error.strerror)
            return
        if raw == self._seen:
            return
        self._seen = raw
        try:
            named = parsing.partitions(raw.decode())
        except ValueError as error:
            log.warning("pauseFile (%s) %s; these partitions stay paused: %s", path, error, _listed(self._named))
            return
        if named != self._named:
            log.info("paused by %s: %s", path, _listed(named))
        self._named = named


def _listed(tps: frozenset[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(tps))) or "none"


def go_back(
    query: Query, begin: Mapping[TopicPartition, int], found: truncation.Look, ends_before: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """New positions of partitions whose logs have lost their ends, in the group too. `begin`: positions of the
    partitions that `found` suspects. `ends_before`: ends of the logs as looked up before that. Raises DataLossError,
    MembershipLostError, CommitError, BrokerError."""
    standing, committer = query.standing, query.committer
    back = {}
    for tp, position in begin.items():
        problem, at = truncation.explained(found, tp, position, standing.epochs.known)
        query.losses.report("PARTITION_OFFSET_CHANGED", problem, max(0, ends_before.get(tp, 0) - position))
        back[tp] = _go_on_at(query, tp, at)
    standing.epochs.known |= {tp: found.epochs[tp] for tp in back if tp in found.epochs}
    # The group's offsets of these are beyond the logs' ends, or of records that have been replaced.
    ahead = {tp: at for tp, at in back.items() if committer.in_group.get(tp, at) > at}
    if ahead:
        generation = query.generation.id
        query.member.check_may_commit()
        standing.hold(generation)
        committer.correct(ahead, generation, standing.proven.batch)
    return back


def skip_expired(query: Query, begin: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """New positions of partitions whose next records have expired. Raises DataLossError, BrokerError."""
    first = query.client.beginning_offsets(begin)
    skipped = {}
    for tp in sorted(tp for tp, offset in first.items() if offset > begin[tp]):
        query.losses.report(
            "COULD_NOT_READ_OFFSET_RANGE",
            f"{tp}: records of offsets {begin[tp]} to {first[tp] - 1} have expired or were deleted",
            first[tp] - begin[tp],
        )
        skipped[tp] = _go_on_at(query, tp, first[tp])
    return skipped


def _go_on_at(query: Query, tp: TopicPartition, offset: int) -> int:
    query.events.moved(query.generation.id, {tp: (query.standing.position(tp), offset, "data loss")})
    query.standing.moved[tp] = offset
    return offset


ENDS_HOLD_S = 1.0  # how long ends of logs are good enough, if they leave a batch all offsets that it may have


class Backlog:
    """Looks up the ends of the owned partitions' logs, and cuts the ranges up to them to those that may be read now.

    `ends`: ends of these logs as last looked up. Emptied when positions are taken, but for partitions without a leader.
    `leaderless`: partitions that the last look left out as they had no leader. `ends` has their ends of before.
    """

    def __init__(self, query: Query, caps: Mapping[TopicPartition, int] | None) -> None:
        reading = query.options.reading
        self._query = query
        self.ends: dict[TopicPartition, int] = {}
        self.looked_up_at: float | None = None  # when they were looked up, by time.monotonic(); None before
        self.ages = BacklogAges()  # when these ends were where, by time.monotonic()
        self.bounds = EndBounds(query.options, caps)  # where reading ends before the logs do
        self.leaderless = LeaderlessPartitions(query.group_id)
        self._retry_delays = RetryDelays(reading.retry_delays_ms, query.client.offsets_for_times)
        self._paused = PausedPartitions(reading.paused, reading.pause_file)
        self._beyond_stable = BeyondLastStable()
        self._long_poll = LongPoll(query.options)
        self._awaited = AwaitedTopics(query.group_id, reading.subscription)
        self._all_read: tuple[GroupOffset, int, frozenset[TopicPartition]] | None = None  # start, generation, paused

    def ranges(self, max_offsets: int | None) -> list[OffsetRange] | None:
        """The range to read of each positioned partition: empty for a paused one, of a retry topic the due records.

        A partition without a leader has none; a query with availableNow waits for the leader.

        None when topics turned out to have been recreated, so that positions have to be taken again. Raises
        DataLossError, MembershipLostError, CommitError, BrokerError.
        """
        query, standing = self._query, self._query.standing
        paused = self._paused.partitions()
        begin = standing.starts(query.generation.assignment)
        found = self._look(begin, max_offsets)
        ends_before = self.ends
        self.ends = found.ends | self.leaderless.select_from(ends_before)  # nobody appends to their logs
        self._awaited.look(lambda: query.client.known_partitions(query.subscription), self.ends)
        self.ages.observe(self.ends, time.monotonic() * 1000)
        if self._recreated(found.suspect):
            return None
        self._retry_delays.forget(found.suspect)
        begin |= go_back(query, {tp: begin[tp] for tp in found.suspect}, found, ends_before)
        standing.epochs.known |= found.epochs
        if not query.losses.fail:
            behind = {tp: begin[tp] for tp, end in found.ends.items() if end > begin[tp]}
            skipped = skip_expired(query, behind)
            self._retry_delays.forget(skipped)
            begin |= skipped
        self.bounds.learn(query.client, found.ends, standing.existing_at_start)
        until = {tp: begin[tp] if tp in paused else self._bounded(tp, begin[tp]) for tp in found.ends}
        return self._retry_delays.due([OffsetRange(tp, begin[tp], end) for tp, end in until.items()])

    def still_all_read(self, start: GroupOffset) -> bool:
        """Whether nothing can have changed since a call from `start` found every log read to its end."""
        member = self._query.member
        if self._all_read is None or not member.undisturbed():
            return False
        if self._all_read != (start, member.generation.id, self._paused.partitions()):
            return False
        return self._nothing_new() and not self._retry_delays.passed()

    def wait_for_records(self) -> None:
        """No batch is planned: have brokers say when records come to the partitions that may be read on."""
        if self.looked_up_at is None:
            return  # the first join is not over
        standing, paused = self._query.standing, self._paused.partitions()
        stopped = self.bounds.stopped(self.ends)
        # The ends may be from before a rebalance, and the positions of partitions that it took may be gone.
        begin = standing.starts(self._query.member.owned)
        awaited = begin.keys() - paused - stopped - self.leaderless.now.keys()
        ends = {tp: end for tp, end in self.ends.items() if tp in awaited}
        left = self._retry_delays.due_as_known([OffsetRange(tp, begin[tp], end) for tp, end in ends.items()])
        read = all(r.size == 0 for r in left)
        self._all_read = (standing.proven, self._query.generation.id, paused) if read else None
        if not self.bounds.available_now and (ends or not awaited):
            self._long_poll.start(ends, self.looked_up_at)

    def forget(self, tps: Collection[TopicPartition]) -> None:
        """Positions of these are taken again: their topics may be recreated, or other members may have read on."""
        self.ends = {tp: end for tp, end in self.leaderless.select_from(self.ends).items() if tp not in tps}
        self._retry_delays.forget(tps)

    def forget_topics(self, topics: Collection[str]) -> None:
        """Forget these topics, which were recreated."""
        self.bounds.forget_topics(topics)

    def close(self) -> None:
        self._long_poll.close()

    def _look(self, begin: Mapping[TopicPartition, int], max_offsets: int | None) -> truncation.Look:
        """Ends of logs, those of before where they are as good; a look that shows a loss is repeated."""
        if begin.keys() == self.ends.keys() | self.leaderless.now:
            led = self.leaderless.left_out_of(begin)
            if self._nothing_new() or self._ends_suffice(led, max_offsets):
                return truncation.Look(self.leaderless.left_out_of(self.ends))
        client, known = self._query.client, self._query.standing.epochs.known
        led_only = not self.bounds.available_now

        def look() -> truncation.Look:
            found = truncation.look(client, begin, known, led_only)
            if self._query.options.fetching.committed_only:
                found = replace(found, behind=frozenset(self._beyond_stable.lost(client, begin, found.behind)))
            if found.doubtful or found.diverged:
                client.existing(begin, of_any=True)  # which asks for their topics' ids, and leaders, too
            return found

        found = looked_up_until(lambda found: not found.doubtful, look)
        self.looked_up_at = time.monotonic()
        lacking = client.without_leader(begin.keys() - found.ends.keys())
        self.leaderless.note(lacking, found.ends, self.looked_up_at)
        return found

    def _nothing_new(self) -> bool:
        return self._long_poll.nothing_new(self._retry_delays.left_s())

    def _ends_suffice(self, begin: Mapping[TopicPartition, int], max_offsets: int | None) -> bool:
        """Whether the ends looked up for an earlier batch, not long ago, leave this one as much as it may have."""
        if self.looked_up_at is None or time.monotonic() - self.looked_up_at > ENDS_HOLD_S:
            return False
        if self.bounds.caps_reached(self.ends):
            return True
        left = self._retry_delays.due_as_known([OffsetRange(tp, at, self._bounded(tp, at)) for tp, at in begin.items()])
        return max_offsets is not None and sum(r.size for r in left) >= max_offsets

    def _bounded(self, tp: TopicPartition, begin: int) -> int:
        return self.bounds.bounded(tp, begin, self.ends[tp])

    def _recreated(self, suspect: Collection[TopicPartition]) -> bool:
        """Whether a log ends before its position as its topic was recreated."""
        if not suspect:
            return False
        ids = self._query.client.topic_ids({tp.topic for tp in suspect})
        return bool(rules.recreated(self._query.standing.topic_ids, ids))
