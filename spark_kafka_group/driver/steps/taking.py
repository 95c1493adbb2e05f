"""Where owned partitions start that this member did not own before: decided once, and agreed with the group."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from spark_kafka_group.driver.membership.member_protocol import others_in_group
from spark_kafka_group.driver.membership.other_sources import OtherSources
from spark_kafka_group.driver.membership.yielding import YieldedBatch
from spark_kafka_group.driver.positions import rules, unowned
from spark_kafka_group.driver.positions.lookup import looked_up, warn_without_offset
from spark_kafka_group.driver.query import Query
from spark_kafka_group.driver.steps import topic_changes
from spark_kafka_group.driver.steps.backlog import Backlog
from spark_kafka_group.errors import NEW_CHECKPOINT, AuthorizationError, FencedError
from spark_kafka_group.options.bounds import Bound
from spark_kafka_group.values.commit_metadata import instance_id_of
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire import Committed

log = logging.getLogger(__name__)

Starts = Mapping[TopicPartition, rules.Start]


class Taking:
    """Takes positions, at every trigger, of the owned partitions that have none yet."""

    def __init__(self, query: Query, backlog: Backlog, yielded: YieldedBatch, other_sources: OtherSources) -> None:
        self._query = query
        self._standing = query.standing
        self._backlog = backlog
        self._yielded = yielded
        self._other_sources = other_sources
        reading = query.options.reading
        starting = reading.starting or Bound("startingOffsets", group=True)
        self._rules = rules.StartRules(starting, reading.auto_offset_reset or "latest", reading.retry_delays_ms)

    def take_positions(self) -> None:
        """Decide where owned partitions start that have no position; each step may be made again after an error. Raises
        FencedError when another process has taken this query's place; NoOffsetForPartitionError, OffsetConflictError,
        OptionError, DataLossError when no start can be decided; MembershipLostError, CommitError, BrokerError."""
        self._drop_deleted_moves()
        self._note_topic_changes()
        missing = self._query.generation.assignment - self._standing.positioned - self._standing.deleted
        committed = self._committed_at_start(missing) if self._standing.is_restart else self._committed(missing)
        if missing:
            self._refuse_if_replaced(committed)
            self._refuse_older_checkpoint(committed)
            self._note_left_out(committed)
            starts = self._starts(missing, committed)
            if self._tried_metadata(starts, committed):
                before, committed = committed, self._committed(missing)
                others_came = any(group.offset != before[tp].offset for tp, group in committed.items() if tp in before)
                if others_came or not self._query.committer.keeps_metadata:
                    starts = self._starts(missing, committed)
            self._warn_of(starts)
            self._warn_of_file_sinks(committed)
            offsets = self._looked_up(starts, committed)
            self._agree(starts, offsets, committed)
            self._count_conflicts(starts)
            log.info("starting at %s", " ".join(f"{tp}={offset}" for tp, offset in sorted(offsets.items())))
        self._standing.taken()

    def _drop_deleted_moves(self) -> None:
        """Forget positions of partitions that are neither owned nor exist."""
        moved, owned = self._standing.moved, self._query.generation.assignment
        given_up = topic_changes.existing(self._query, {tp: at for tp, at in moved.items() if tp not in owned})
        self._standing.moved = {tp: at for tp, at in moved.items() if tp in owned} | given_up

    def _note_topic_changes(self) -> None:
        """Which topics and partitions were recreated or deleted; at the start, which ones exist."""
        recreated = topic_changes.check_recreated(self._query, self._committed)
        self._backlog.forget_topics(recreated)
        topic_changes.check_deleted(self._query)
        if self._standing.is_restart:
            self._standing.existing_at_start = self._query.client.known_partitions(self._query.subscription)
            topic_changes.check_named(self._query, self._rules.starting)

    def _committed(self, tps: Collection[TopicPartition], stable: bool = True) -> dict[TopicPartition, Committed]:
        """The group's commits for `tps`; a new query with ``assign`` and explicit offsets needs no right to see any."""
        try:
            return self._query.client.committed(tps, stable=stable) if tps else {}
        except AuthorizationError:
            manual = self._query.subscription.manual
            if self._standing.is_new_query and manual and not self._rules.starting.group:
                self._standing.is_unseen = True
                return {}
            raise

    def _committed_to(self, unsubscribed: Collection[TopicPartition]) -> dict[TopicPartition, Committed]:
        """As :meth:`_committed`, of topics to which the user need not have a right any more. Open transactions of
        others keep nobody waiting; one of this query's own sink may hold its offset."""
        try:
            return self._committed(unsubscribed, stable=self._standing.proven.in_transaction)
        except AuthorizationError as error:
            log.info("%s; positions of topics that the query does not subscribe to stay as they are", error)
            return {}

    def _committed_at_start(self, missing: Collection[TopicPartition]) -> dict[TopicPartition, Committed]:
        """As :meth:`_committed`; and note the group's offsets of the checkpoint's other partitions."""
        query, standing = self._query, self._standing
        elsewhere = topic_changes.unowned(query, query.generation.assignment)
        unsubscribed = topic_changes.unsubscribed(query, elsewhere)
        committed = self._committed({*missing, *(elsewhere.keys() - unsubscribed)}) | self._committed_to(unsubscribed)
        standing.noted_generation = rules.latest_generation(committed, query.query_id)
        others = {tp: group for tp, group in committed.items() if tp in elsewhere}
        policy, proven = query.options.reading.on_offset_conflict, standing.proven
        if standing.newer_than_group and policy != "group":
            # Spark's own source never commits. The group's offsets of now are older than its checkpoint, also those of
            # partitions that others own as yet; later ones are newer.
            standing.overrides = {tp: group.offset for tp, group in others.items()}
        else:
            standing.overrides = dict(proven.overrides) if policy != "group" else {}
            if proven.group_id not in (None, query.group_id):
                standing.overrides |= unowned.committed_before(elsewhere, others, query.query_id, proven)
            standing.left_to_group = unowned.settled(elsewhere, others, query.query_id, proven) - unsubscribed
            # The checkpoint keeps positions of unsubscribed partitions: the group forgets its offsets of these.
            undelivered = unowned.undelivered(elsewhere, others, query.query_id, proven)
            standing.moved |= {tp: at for tp, at in undelivered.items() if tp in unsubscribed}
        decided = missing if policy == "fail" else ()  # now, by the user
        query.committer.in_group |= {tp: at for tp, at in standing.overrides.items() if tp not in decided}
        return {tp: group for tp, group in committed.items() if tp in missing}

    def _refuse_if_replaced(self, committed: Mapping[TopicPartition, Committed]) -> None:
        """End this process if another one has gone on with the query. Without membership there is no sign of that.

        1. A driver is suspended; its session times out. 2. The query is started again, as another process, which joins
        under a later generation, commits and ends. 3. The driver wakes up, finds its group empty, and joins as new:
        the coordinator has no member to fence. The other process's commits carry its later generation.
        """
        query, standing, held = self._query, self._standing, self._standing.held_generation
        if held is not None and not query.subscription.manual:
            new = {
                tp: g for tp, g in committed.items() if not standing.disputes(tp, g.offset, query.committer.in_group)
            }
            generation = rules.replaced_in(new, query.query_id, standing.proven.batch, held, standing.noted_generation)
            if generation is not None:
                raise FencedError(
                    f"group {query.group_id}: another process went on with this query, up to generation "
                    f"{generation}, while this one was out of the group. It was started from the same checkpoint. "
                    f"This query stops: run one query for each checkpoint"
                )
        standing.held_generation = query.generation.id

    def _refuse_older_checkpoint(self, committed: Mapping[TopicPartition, Committed]) -> None:
        proven, by_sink = self._standing.proven, self._query.options.group.transactional_id
        if self._standing.is_restart and proven.in_transaction and by_sink is not None:
            rules.refuse_older_checkpoint(committed, self._query.query_id, proven.batch)

    def _note_left_out(self, committed: Mapping[TopicPartition, Committed]) -> None:
        proven = self._standing.proven
        self._yielded.learn(committed, proven, proven.batch + 1)

    def _tried_metadata(self, starts: Starts, committed: Mapping[TopicPartition, Committed]) -> bool:
        """Find out whether brokers keep metadata, by putting this query's on an offset that would else be taken for
        another program's. Returns whether that was done: the group's commits have changed then."""
        query, standing = self._query, self._standing
        unsigned = {
            tp: committed[tp]
            for tp, start in starts.items()
            if start.conflict is not None and start.why == rules.BY_GROUP and not committed[tp].metadata
        }
        policy = query.options.reading.on_offset_conflict if standing.is_restart else "auto"
        if not unsigned or policy != "auto" or query.committer.looked_for_metadata or standing.is_new_query:
            return False
        query.member.check_may_commit()
        query.committer.try_metadata(unsigned, query.generation.id, standing.proven.batch)
        return True

    def _starts(
        self, missing: Collection[TopicPartition], committed: Mapping[TopicPartition, Committed]
    ) -> dict[TopicPartition, rules.Start]:
        """Starts of `missing` by the rules: of recreated partitions, of those the query knows, and of all others."""
        standing, query_id = self._standing, self._query.query_id
        proven = standing.proven
        recreated = {tp for tp in missing if tp.topic in standing.recreated}
        known = (standing.kept() | self._yielded.left_out).items()
        positions = {tp: at for tp, at in known if tp in missing and tp not in recreated}
        rest = set(missing) - positions.keys() - recreated
        in_group = self._query.committer.in_group
        checkpoint = rules.Checkpoint(
            positions,
            query_id,
            proven.generation,
            proven.batch,
            foreign=standing.newer_than_group and standing.is_restart,
            untouched=frozenset(tp for tp, group in committed.items() if in_group.get(tp) == group.offset),
            in_transaction=proven.is_in_group,
        )
        policy = self._query.options.reading.on_offset_conflict if standing.is_restart else "auto"
        if standing.is_restart and policy == "auto" and not self._query.committer.keeps_metadata:
            policy = "checkpoint"  # later, an offset that this process did not commit is that of another member
        starts = rules.restarted(checkpoint, committed, policy)
        # This query's own commits for a topic that was deleted do not hold for the one made after it.
        starts |= rules.new_partitions(recreated, topic_changes.by_others(committed, query_id, proven))
        if standing.is_new_query:
            return starts | self._rules.new(rest, committed, self._members_reading(rest & committed.keys()))
        new = rest - standing.known_before()
        # Where an older checkpoint was restored, this query's own later commits do not hold for it.
        by_now = {tp: g for tp, g in committed.items() if rules.latest_batch({tp: g}, query_id) <= proven.batch}
        return starts | rules.new_partitions(new, by_now) | self._rules.gained(rest - new, committed)

    def _members_reading(self, tps: Collection[TopicPartition]) -> tuple[str, ...]:
        """Names of members that go on from the group's commits of `tps`, where options say other starts."""
        query = self._query
        if not tps or self._rules.starting.group or query.subscription.manual:
            return ()
        configured = query.options.group.instance_id
        apart = [instance_id_of(configured, query_id) for query_id in self._other_sources.apart()]
        return others_in_group(query.client, query.generation, instance_id_of(configured, query.query_id), apart)

    def _warn_of(self, starts: Starts) -> None:
        """Log where the group contradicts the start that is taken, and where it may have forgotten an offset."""
        query = self._query
        of_group = self._standing.proven.group_id
        if self._standing.is_restart and of_group not in (None, query.group_id):
            log.warning(
                "group %s: the checkpoint is that of a query of group %s. This query goes on at the offsets in it, and "
                "startingOffsets has no effect. A new query needs %s",
                query.group_id, of_group, NEW_CHECKPOINT,
            )  # fmt: skip
        for tp in sorted(starts):
            if starts[tp].conflict:
                log.warning("group %s: %s", query.group_id, starts[tp].conflict)
        if query.options.group.id is not None or not self._standing.is_new_query:  # or nobody had the group before
            without = rules.by_reset(starts)
            warn_without_offset(query.client, query.group_id, without, self._rules.auto_offset_reset)

    def _warn_of_file_sinks(self, committed: Mapping[TopicPartition, Committed]) -> None:
        """Log, as nobody else does, that Spark's file sinks would skip batches of this query, which sees no sink."""
        query = self._query
        batch = rules.latest_batch_of_others(committed, query.query_id)
        is_first = query.subscription.manual or query.generation.alone
        if self._standing.is_new_query and is_first and batch >= 0:
            log.warning(
                "group %s: this query begins with batch 0, and another query of the group has committed batches up to "
                "%d. If this one writes files, it needs an output folder of its own: Spark skips batches whose numbers "
                "a folder has, and their records would be committed and not written",
                query.group_id, batch,
            )  # fmt: skip

    def _looked_up(self, starts: Starts, committed: Mapping[TopicPartition, Committed]) -> dict[TopicPartition, int]:
        """`starts` as offsets; those of partitions that were deleted meanwhile are not there."""
        query, standing = self._query, self._standing
        self._backlog.forget(starts)
        strategy = query.options.reading.starting_by_timestamp_strategy
        offsets = looked_up(query.client, {tp: start.offset for tp, start in starts.items()}, strategy)
        topic_changes.check_added(query, starts, offsets)
        standing.epochs.taken(offsets, standing.proven, committed, lambda tp: tp.topic in standing.recreated)
        # The group's own offset needs no reason, unless it contradicts the checkpoint.
        reasons = {tp: s.why for tp, s in starts.items() if tp in offsets and (s.conflict or s.why != rules.BY_GROUP)}
        if reasons:
            before = standing.proven.positions
            moves = {tp: (before.get(tp), offsets[tp], why) for tp, why in reasons.items()}
            query.events.moved(query.generation.id, moves)
        return offsets

    def _agree(
        self,
        starts: Starts,
        offsets: dict[TopicPartition, int],
        committed: Mapping[TopicPartition, Committed],
    ) -> None:
        """Correct the group where it is wrong, put this query's metadata on offsets of others, and take the positions.

        1. Positions of partitions without a commit are noted: only this process knows them. 2. The commits are sent.
        If one fails, partitions stay without a position, and the next trigger decides again, by the group's offsets of
        then. 3. With the group's agreement all positions hold, but for partitions with a newer commit, which came
        between the lookup of `committed` and 2.

        Two processes may be at work on one checkpoint: 1. The older one runs, and this one has read a checkpoint that
        ends with batch 7. 2. The older one logs and commits batch 8. 3. This one joins, so the older one stops. 4. This
        one would set the group back to the end of batch 7, and plans batch 8. 5. Spark stops it, as that is logged.
        6. Another member reads batch 8 again. So this one leaves the offsets of batch 8 until Spark has logged its own:
        it sets no partition back before that, whoever has committed there, and later only those that are no later
        batch's. (Where the sink commits offsets, a checkpoint that is older than the group is refused.)

        A new query does at once, as the next process knows only by the group's offset that it holds no more: 1. the
        options say 0, and the group 7, 2. Spark logs a batch from 0 to 3, 3. the process is killed before it begins.
        """
        query, standing, committer = self._query, self._standing, self._query.committer
        generation, batch, in_group = query.generation.id, standing.proven.batch, committer.in_group
        wrong = rules.wrong_in_group(starts, committed, standing.proven, query.query_id)
        corrections = {tp: offsets[tp] for tp in wrong if tp in offsets}
        adopted = rules.adopted(offsets, committed, corrections, query.query_id, batch, generation)
        if query.options.group.transactional_id is None:
            # Others that had the partition meanwhile have left its offset as it was, whatever their metadata says.
            left = {tp for tp, group in committed.items() if standing.disputes(tp, group.offset, in_group)}
            later = rules.of_later_batches(committed, offsets, query.query_id, batch) | left
            moves = {tp for tp, at in offsets.items() if tp in committed and committed[tp].offset != at}
            back = {tp for tp in moves if committed[tp].offset > offsets[tp]}
            standing.disputed = (standing.disputed - offsets.keys()) | (moves & later)
            standing.disputed |= back if standing.may_be_behind else set()
            corrections = {tp: at for tp, at in corrections.items() if tp not in standing.disputed}
        if corrections or adopted or standing.disputed:
            query.member.check_may_commit()
        before = standing.proven.positions
        moved = {tp: at for tp, at in (standing.moved | offsets).items() if before.get(tp) != at}
        standing.moved |= {tp: at for tp, at in moved.items() if tp not in committed}
        with committer.agreed(starts, committed):
            newer = committer.correct(corrections, generation, batch)
            newer |= committer.adopt(adopted, generation, batch)
        standing.take_starts(offsets, moved, newer)

    def _count_conflicts(self, starts: Starts) -> None:
        if self._standing.is_restart and not self._standing.is_new_query:
            self._query.metrics.offset_conflicts += sum(start.conflict is not None for start in starts.values())
