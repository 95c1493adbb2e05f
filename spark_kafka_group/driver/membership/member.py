"""Membership of the consumer group: when to join, and when a micro-batch starts a new generation."""

from __future__ import annotations

import logging
import time

from spark_kafka_group.assignors import is_cooperative, resolve
from spark_kafka_group.driver.hooks import Hooks
from spark_kafka_group.driver.membership.member_protocol import Joined, Membership
from spark_kafka_group.driver.reporting.events import EventLog
from spark_kafka_group.driver.reporting.query_metrics import Metrics
from spark_kafka_group.options import Options
from spark_kafka_group.text.foreign_text import printable
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire import Generation, GroupClient

log = logging.getLogger(__name__)

BROKER_ASSIGNS = (
    "the broker assigns the partitions, as a member has Kafka's newer protocol (group.protocol=consumer). Meanwhile "
    "kafka.partition.assignment.strategy and generation have no effect, and the number of a generation is the epoch of "
    "this member. That ends when the last member of this kind has left, or, where the broker's "
    "group.consumer.migration.policy is upgrade, when all members have"
)
MEMBERS_ASSIGN = (
    "no member has Kafka's newer protocol any more: a member assigns the partitions, by "
    "kafka.partition.assignment.strategy"
)
LOOK_EVERY_S = 5.0
"""How often a member of a group that the broker assigns looks whether its heartbeats tell all: as long as members of
the newer protocol wait between two heartbeats."""
LOOK_MS = 500.0
"""How long it waits for the answer: Spark's next call waits as long, and nothing that it does depends on this one."""


class Member(Membership):
    """This driver's place in the group. `static_id`: group.instance.id: the user's own, or one derived from the query
    id."""

    def __init__(
        self,
        options: Options,
        group_id: str,
        static_id: str,
        hooks: Hooks,
        events: EventLog,
        metrics: Metrics,
    ) -> None:
        self._options = options
        self._group_id = group_id
        self._hooks = hooks
        self._events = events
        self._metrics = metrics
        self._used = True  # whether a batch was planned under the current generation
        self._joining = False  # the first join has begun
        self._missing: list[str] | None = None  # topics that a first join has lacked
        self._preparing = False  # the listener has been called for a rebalance that is not over
        self._lost = False
        self._rebalancing_since_s = 0.0
        self._looked_s = 0.0  # at a group that the broker assigns, by time.monotonic()
        self._assignor = ""  # the broker's, as last seen
        self.client = GroupClient(options, group_id, static_id, resolve(options.group.assignment_strategy))
        self.client.subscribe(options.reading.subscription)

    @property
    def strategy(self) -> str:
        """What assigned its partitions: a strategy of the members, or the broker's assignor, empty while unknown."""
        return self._assignor if self.generation.by_broker else self.generation.strategy

    def asked_to_rejoin(self) -> bool:
        return self._may_commit() and self.client.rejoin_needed()

    def _may_commit(self) -> bool:
        """Whether it is still a member that has not given its partitions back."""
        return self._generation is not None and not self._preparing and not self.client.lost()

    def hears_of_rebalance(self) -> bool:
        self.client.heartbeat()
        return self.client.rejoin_needed()

    def hands_over(self) -> bool:
        """Whether others go on when this driver leaves, as members or as they wait to join, and it can commit."""
        can = self._may_commit() and self._options.group.instance_id is None and self.client.knows_coordinator()
        return can and (not self.generation.alone or self.hears_of_rebalance())

    def may_be_joined(self) -> bool:
        # Others are members, or may join together with the generation of the batch, which no heartbeat announces.
        return not self.generation.alone or self._begins_generation()

    def unsettled(self) -> bool:
        self._look_at_group()
        return self._joining and (self._generation is None or self.client.rejoin_needed())

    def undisturbed(self) -> bool:
        if self._generation is None:
            return False
        self.client.check_not_fenced()
        return not self.client.rejoin_needed()

    def ensure(self, patience_ms: float | None = None) -> Joined:
        if self._generation is None:
            first = self._join_first(patience_ms)
            if first is None:
                return Joined.NOT_YET
            self._enter(first)
            self._hooks.partitions_assigned(self.generation.assignment)
            return Joined.AS_NEW
        self.client.check_not_fenced()
        self._look_at_group()
        return self._rejoin(self._generation, patience_ms) if self.client.rejoin_needed() else Joined.SAME

    def _look_at_group(self) -> None:
        """Where the broker assigns, take note of its assignor, and ask to join again if it waits for that: heartbeats
        do not say it."""
        if self._generation is None or not self._generation.by_broker or self.client.rejoin_needed():
            return
        if time.monotonic() - self._looked_s < LOOK_EVERY_S:
            return
        group = self.client.assigned_by_broker(LOOK_MS)
        self._looked_s = time.monotonic()
        if group is None:
            return
        self._assignor = group.strategy
        if group.waits_for_a_join:
            log.info("group %s: joining again, so that the broker assigns partitions that were left", self._group_id)
            self.client.request_rejoin()

    def _rejoin(self, before: Generation, patience_ms: float | None) -> Joined:
        """Take part in a rebalance, after the generation `before`; may be called again until it is over."""
        if not self._preparing:
            self._preparing = True
            self._rebalancing_since_s = time.monotonic()
            self._prepare(before)
        joined = self.client.join_as("" if self._lost else before.member_id, lambda: self._join(patience_ms))
        if joined is None:
            return Joined.NOT_YET
        settled_s = time.monotonic()
        self._metrics.rebalance.record((settled_s - self._rebalancing_since_s) * 1000, settled_s)
        # For the listener, partitions are held until it has been called for their revocation, or loss.
        held = before.assignment if is_cooperative(before.strategy) else frozenset()
        was_lost = self._lost or self._is_found_lost(before, joined, held)
        held = frozenset() if was_lost else held
        self._preparing = self._lost = False
        self._enter(joined)
        if held - joined.assignment:
            self._hooks.partitions_revoked(held - joined.assignment)
        self._hooks.partitions_assigned(joined.assignment - held)
        return Joined.AS_NEW if was_lost else Joined.NEW_GENERATION

    def _is_found_lost(self, before: Generation, joined: Generation, held: frozenset[TopicPartition]) -> bool:
        """Whether the group removed this member, as only the answer to its JoinGroup has said; reports it."""
        if joined.member_id == before.member_id:
            return False
        self._note_lost(before, held)
        return True

    def _join(self, patience_ms: float | None) -> Generation | None:
        return self.client.join() if patience_ms is None else self.client.join_within(patience_ms)

    def _join_first(self, patience_ms: float | None) -> Generation | None:
        self._joining = True
        subscription = self._options.reading.subscription
        existing = self.client.partitions(subscription)  # a leader assigns the partitions that it knows to exist
        missing = subscription.missing(existing)
        said, self._missing = self._missing, missing  # the join may take many triggers
        if missing and missing != said:
            log.warning(
                "group %s: the cluster lacks topics of subscribe, and the query goes on without them until they exist: "
                "%s. Create them, or correct their names",
                self._group_id, ", ".join(missing),
            )  # fmt: skip
        elif not existing and said is None:
            log.warning(
                "group %s: no topic matches subscribePattern (%s) yet: the query waits for one. Create it, or correct "
                "the pattern",
                self._group_id, subscription.pattern,
            )  # fmt: skip
        return self.client.join_first(lambda: self._join(patience_ms))

    def _prepare(self, before: Generation) -> None:
        """Report the partitions that are given back, or lost; the commit of the last batch has come first."""
        if self.client.lost():
            self._lost = True
            self._note_lost(before, before.assignment)
            return
        self._metrics.rebalances += 1
        self._events.revoked(before.id, before.assignment)
        if not is_cooperative(before.strategy):
            self._hooks.partitions_revoked(before.assignment)

    def _note_lost(self, before: Generation, held: frozenset[TopicPartition]) -> None:
        """Report that membership was lost after the generation `before`; the listener still has partitions `held`."""
        self._metrics.lost += 1
        log.warning(
            "group %s: generation %d: membership was lost; joining as a new member. Other members may have read %s "
            "from the last commit on",
            self._group_id, before.id, _listed(before.assignment),
        )  # fmt: skip
        self._events.lost(before.id, before.assignment)
        if held:
            self._hooks.partitions_lost(held)

    def next_generation(self) -> Joined:
        """Start a new generation for a batch if option ``generation`` says so and the current one already had one.

        1. This member, alone in the group, asks to join again. 2. Another one joins before the coordinator has
        answered. 3. The new generation has both, and this member has lost partitions: that is a rebalance, and the
        listener is called. So it is if the group has removed this member before 1: it joins as a new one.
        """
        if not self._begins_generation():
            return Joined.SAME
        before, asked_s = self.generation, time.monotonic()
        self.client.request_rejoin()
        joined = self.client.join_as(before.member_id, self.client.join)
        was_lost = self._is_found_lost(before, joined, before.assignment)
        self._enter(joined)
        if was_lost or joined.assignment != before.assignment:
            settled_s = time.monotonic()
            self._metrics.rebalance.record((settled_s - asked_s) * 1000, settled_s)
            if not was_lost:
                self._metrics.rebalances += 1
                self._hooks.partitions_revoked(before.assignment)
            self._hooks.partitions_assigned(joined.assignment)
        return Joined.AS_NEW if was_lost else Joined.NEW_GENERATION

    def use(self) -> int:
        self._used = True
        return self.generation.id

    def _begins_generation(self) -> bool:
        policy = self._options.group.generation
        if self.generation.by_broker:  # it begins none for a member whose subscription has not changed
            return False
        return self._used and (policy == "batch" or (policy == "auto" and self.generation.alone))

    def _enter(self, joined: Generation) -> None:
        before = self._generation
        if before is None or joined.id != before.id:
            self._used = False
        if joined.by_broker != (before is not None and before.by_broker):
            self._looked_s, self._assignor = 0.0, ""
            log.warning("group %s: %s", self._group_id, BROKER_ASSIGNS if joined.by_broker else MEMBERS_ASSIGN)
        self._generation = joined
        self._events.assigned(joined.id, joined.assignment)
        log.info(
            "group %s: generation %d: %s of %s as %s (%s): assigned %s",
            self._group_id,
            joined.id,
            "leader" if joined.leader else "follower",
            f"{joined.members} member(s)" if joined.members else "the group",
            printable(joined.member_id),
            printable(joined.strategy),
            _listed(joined.assignment),
        )

    def check_may_commit(self) -> None:
        """A member may commit: the group fences others."""

    def stop(self) -> None:
        """Leave the group, but not under a static name of the user's own, as in Kafka; never hang on a dead broker."""
        try:
            if self._options.group.instance_id is None:
                self.client.leave()
        finally:
            self.client.close()


def _listed(tps: frozenset[TopicPartition]) -> str:
    return " ".join(map(str, sorted(tps))) or "nothing"
