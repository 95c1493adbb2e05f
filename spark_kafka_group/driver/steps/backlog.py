"""The backlog: ranges that may be read of each owned partition, and when it is worth looking up their ends again."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace

from spark_kafka_group.driver.backlog.end_bounds import EndBounds
from spark_kafka_group.driver.backlog.lacking_leaders import LeaderlessPartitions
from spark_kafka_group.driver.backlog.last_stable import BeyondLastStable
from spark_kafka_group.driver.backlog.long_poll import LongPoll
from spark_kafka_group.driver.backlog.pausing import PausedPartitions
from spark_kafka_group.driver.backlog.retry_delays import RetryDelays
from spark_kafka_group.driver.positions import rules, truncation
from spark_kafka_group.driver.positions.lookup import looked_up_until
from spark_kafka_group.driver.query import Query
from spark_kafka_group.driver.reporting.awaited_topics import AwaitedTopics
from spark_kafka_group.driver.reporting.backlog_ages import BacklogAges
from spark_kafka_group.driver.steps import lost_records
from spark_kafka_group.values.offsets import GroupOffset, OffsetRange, TopicPartition

ENDS_HOLD_S = 1.0
"""How long ends of logs are good enough, if they leave a batch all offsets that it may have."""


class Backlog:
    """Looks up the ends of the owned partitions' logs, and cuts the ranges up to them to those that may be read now.

    Attributes
    ----------
    ends
        Ends of these logs as last looked up. Emptied when positions are taken, but for partitions without a leader.
    looked_up_at
        When that was, by time.monotonic(); None before the first look.
    ages
        When these ends were where, by time.monotonic().
    bounds
        Where reading ends before the logs do.
    leaderless
        Partitions that the last look left out as they had no leader. `ends` has their ends of before.
    """

    def __init__(self, query: Query, caps: Mapping[TopicPartition, int] | None) -> None:
        reading = query.options.reading
        self._query = query
        self.ends: dict[TopicPartition, int] = {}
        self.looked_up_at: float | None = None
        self.ages = BacklogAges()
        self.bounds = EndBounds(query.options, caps)
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

        None when topics turned out to have been recreated, so that positions have to be taken again.

        Raises
        ------
        DataLossError, MembershipLostError, CommitError, BrokerError
        """
        query, standing = self._query, self._query.standing
        paused = self._paused.partitions()
        begin = standing.starts(query.generation.assignment)
        found = self._look(begin, max_offsets)
        ends_before = self.ends
        self.ends = found.ends | self.leaderless.of(ends_before)  # nobody appends to their logs
        self._awaited.look(lambda: query.client.known_partitions(query.subscription), self.ends)
        self.ages.observe(self.ends, time.monotonic() * 1000)
        if self._recreated(found.suspect):
            return None
        self._retry_delays.forget(found.suspect)
        begin |= lost_records.go_back(query, {tp: begin[tp] for tp in found.suspect}, found, ends_before)
        standing.epochs.known |= found.epochs
        if not query.losses.fail:
            behind = {tp: begin[tp] for tp, end in found.ends.items() if end > begin[tp]}
            skipped = lost_records.skip_expired(query, behind)
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
        self.ends = {tp: end for tp, end in self.leaderless.of(self.ends).items() if tp not in tps}
        self._retry_delays.forget(tps)

    def forget_topics(self, topics: Collection[str]) -> None:
        """Forget these topics, which were recreated."""
        self.bounds.forget_topics(topics)

    def close(self) -> None:
        """Close connections. Harmless when repeated."""
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
