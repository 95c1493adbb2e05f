"""A group as its driver sees it: membership, commits, committed offsets."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType, SimpleNamespace
from typing import Any, TypeVar

import kafka.errors as kafka_errors
from kafka.protocol.admin import ListGroupsRequest
from kafka.protocol.consumer import IsolationLevel, JoinGroupRequest
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaTopicPartition

from spark_kafka_group.assignors import Strategy
from spark_kafka_group.errors import (
    AuthorizationError,
    BrokerError,
    BrokerTimeoutError,
    CommitError,
    CommitTimeoutError,
    FencedError,
    JoinTimeoutError,
    MembershipError,
    MembershipLostError,
)
from spark_kafka_group.options import Options
from spark_kafka_group.options.reading import Subscription
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.values.timing import Timing
from spark_kafka_group.wire.client.connect import ms_until, translated
from spark_kafka_group.wire.consumer_calls import Calls
from spark_kafka_group.wire.coordinator_responses import refusal_of
from spark_kafka_group.wire.group.all_groups import becomes_free, is_of_others, why_not_for_consumers
from spark_kafka_group.wire.group.joining import Joining
from spark_kafka_group.wire.group.leaving import Leaving
from spark_kafka_group.wire.group.members import DescribedGroup, assigned_by_broker, described
from spark_kafka_group.wire.group.membership import Committed, Generation
from spark_kafka_group.wire.group.offset_requests import in_parts, of_no_group
from spark_kafka_group.wire.group.unconfirmed_id import is_removed
from spark_kafka_group.wire.lacking import STATIC_FROM, version_of
from spark_kafka_group.wire.leader_epochs import NO_EPOCH
from spark_kafka_group.wire.log_client import LogClient, reading_uncommitted
from spark_kafka_group.wire.reactions import FENCED, Facts, Request, advice
from spark_kafka_group.wire.topic_admin import session_bounds

log = logging.getLogger(__name__)

G = TypeVar("G", Generation, Generation | None)

SESSION_SLACK_S = 2.0  # how much longer than its session a member that sends no heartbeat may be in its group
LEAVE_MS = 500  # time for the last request, even where those before it have used up the limit
WITHOUT_MEMBERSHIP = (
    "without membership nothing can be committed while the group has members. Take another kafka.group.id, or "
    "subscribe instead of assign"
)


class GroupClient(LogClient):
    """A group as its driver sees it, and the logs that it reads. Nothing joins the group before :meth:`join`.

    Not for several threads: kafka-python's own I/O thread sends heartbeats, everything else is called by one thread.

    `instance_id`: static membership (KIP-345); None for a dynamic member.
    `strategies`: assignment strategies, most preferred first.
    """

    def __init__(
        self, options: Options, group_id: str, instance_id: str | None = None, strategies: Sequence[Strategy] = ()
    ) -> None:
        self._group_id = group_id
        self._manual = False
        self._rounds = Joining(group_id, strategies, self._run)
        assignors = self._rounds.assignors
        self._calls = Calls(
            options,
            group_id=group_id,
            group_instance_id=instance_id,
            session_timeout_ms=options.group.session_timeout_ms,
            heartbeat_interval_ms=options.group.heartbeat_interval_ms,
            max_poll_interval_ms=options.group.max_poll_interval_ms,
            **({"partition_assignment_strategy": assignors} if assignors else {}),
        )
        super().__init__(options, self._calls)
        self._group, self._connection = options.group, options.connection
        self._fenced: FencedError | None = None
        """By a process of which it is not known whether it lives."""
        self._consumer = self._calls.consumer
        self._coordinator = self._consumer._coordinator
        self._rounds.attach(self._consumer)
        if instance_id is not None and version_of(self._calls.manager, JoinGroupRequest) < STATIC_FROM:
            # Later requests of some brokers know static members, and would not know a member that joined without.
            self._coordinator.config["group_instance_id"] = instance_id = None
            log.warning(
                "group %s: these brokers have no static members (JoinGroup %d): a query that was killed waits at its "
                "restart until its session is over, and nothing keeps two processes apart that run from one checkpoint",
                group_id, STATIC_FROM,
            )  # fmt: skip
        names = tuple(assignor.name for assignor in assignors)
        fetched = self._coordinator._handle_offset_fetch_response
        self._coordinator._handle_offset_fetch_response = lambda response: fetched(of_no_group(response))
        self._answers = self._calls.answers
        facts = Facts(group_id, instance_id, options.group.session_timeout_ms, names)
        self._answers.listen_to(self._coordinator, facts)
        # A running micro-batch is progress, however long: the client must not leave by itself. The rebalance timeout
        # sent to the broker is the coordinator's own copy of the setting and stays.
        self._coordinator.heartbeat.config["max_poll_interval_ms"] = float("inf")
        # As Java's consumer: stable offsets, whatever level records are read at. Offsets of a transaction that is not
        # over are waited for. And a broker that has just taken the group over says otherwise that it has no offset.
        self._coordinator._isolation_level = IsolationLevel.READ_COMMITTED

    def reach(self, timeout_ms: float) -> None:
        """As without a group, and ask for the coordinator."""

        def find_coordinator(left_ms: float) -> None:
            self._calls.refresh(left_ms)
            self._know_coordinator(left_ms)

        self._calls.retried("looking for brokers", find_coordinator, timeout_ms)

    def committed(
        self, tps: Collection[TopicPartition], timeout_ms: float | None = None, stable: bool = True
    ) -> dict[TopicPartition, Committed]:
        """Committed offsets; a partition without one is not in the result.

        `stable`: whether to wait for transactions that hold offsets, and for a broker that has just taken the group
            over.
        Raises BrokerError also when `timeout_ms` (kafka.default.api.timeout.ms) is over.
        """
        wanted = [KafkaTopicPartition(*tp) for tp in tps]
        with contextlib.nullcontext() if stable else reading_uncommitted(self._coordinator):
            committed = self._calls.retried(
                f"looking up committed offsets of group {self._group_id}",
                lambda left_ms: self._coordinator.fetch_committed_offsets(wanted, timeout_ms=left_ms),
                timeout_ms,
            )
        return {
            TopicPartition(tp.topic, tp.partition): Committed(
                o.offset, o.metadata or "", NO_EPOCH if o.leader_epoch is None else o.leader_epoch
            )
            for tp, o in committed.items()
        }

    # Membership

    def subscribe(self, subscription: Subscription) -> None:
        """Set the subscription of :meth:`join`, or the partitions to read without joining. Sends nothing."""
        self._manual = subscription.manual
        if subscription.manual:
            self._consumer.assign([KafkaTopicPartition(*tp) for tp in sorted(subscription.partitions)])
        elif subscription.pattern is not None:
            self._consumer.subscribe(pattern=".*")
            # kafka-python's regular expression has to match from the start of a name, and cannot express "and the
            # retry topics of these", nor "but not the topic of decisions"
            self._consumer._subscription.subscribed_pattern = SimpleNamespace(match=subscription.includes)
        else:
            self._consumer.subscribe(sorted(subscription.topics))

    def join(self) -> Generation:
        """Join, or rejoin, and take the assignment. Waits as long as the most patient member lets the group wait,
        perhaps beyond this query's kafka.max.poll.interval.ms. Raises FencedError, MembershipError, BrokerError."""
        timeout_ms = max(self._connection.request_timeout_ms, self._group.max_poll_interval_ms + 5_000)
        if self.rejoin_needed() and self._coordinator.coordinator_unknown():
            self._find_coordinator()  # bounded by itself: members may be slow, brokers may not
        deadline = time.monotonic() + timeout_ms / 1000
        at_once_ms = self._connection.default_api_timeout_ms
        while (joined := self.join_within(min(ms_until(deadline), at_once_ms))) is None:
            refused = self._answers.last_described()
            if self._coordinator.coordinator_unknown():
                self._find_coordinator()  # else brokers that are away would look like slow members
            if time.monotonic() < deadline:
                continue
            if refused is not None:
                raise JoinTimeoutError(f"group {self._group_id} could not be joined within {timeout_ms} ms: {refused}")
            deadline = time.monotonic() + timeout_ms / 1000
            log.warning(
                "group %s: still waiting for other members to join, after %d ms: one of them may be busy for longer "
                "than this query's kafka.max.poll.interval.ms",
                self._group_id, timeout_ms,
            )  # fmt: skip
        return joined

    def join_first(self, join: Callable[[], G]) -> G:
        """Join, by :meth:`join` or :meth:`join_within`, in a process that has just started.

        A static member that comes back within its session may own too little: 1. it joins under its instance id, 2. the
        broker answers with its old assignment and without a rebalance, even if topics have more partitions since or the
        subscription has changed, 3. the answer names the replaced member as leader, so that the returning leader takes
        itself for a follower. 4. So this member joins a second time: for a leader the broker then starts a generation,
        which has a new assignment. A follower gets the current generation, unless its JoinGroup differs from that of
        step 1.
        """
        if self._coordinator.group_instance_id is None:
            return join()
        before = self._subscribed_before()
        # kafka-python rejoins by itself if the old assignment has topics that are no longer subscribed. With the same
        # JoinGroup each time it would do so without end.
        self._rounds.vary(True)
        joined = self.join_as("", join)
        if joined is None:
            return joined
        if not joined.leader:
            changed = before is not None and before != frozenset(self._consumer.subscription() or ())
            self._rounds.vary(changed)
            self.request_rejoin(claiming=changed)
            joined = self.join_as("", join)
        self._rounds.vary(False)
        return joined

    def join_as(self, member_id: str, join: Callable[[], G]) -> G:
        """Join, by :meth:`join` or :meth:`join_within`, as the member with this id; with an empty one, as a new member.

        If another process fences this one while it is that member, it is over. A new member (also one that the group
        has removed meanwhile) finds out whether the other process lives. That may have been killed, and its JoinGroup
        came late. Or that JoinGroup was this process's own, sent before the coordinator's answer to it was lost. Until
        this is known no JoinGroup is sent, in later calls neither: it would fence a process that lives.
        """
        if self._fenced is None:
            try:
                return join()
            except FencedError as error:
                if member_id and self._coordinator._generation.member_id == member_id:
                    raise
                self._fenced = error
        self._outlive_killed_process(self._fenced)
        self._fenced = None
        return join()

    def _outlive_killed_process(self, error: FencedError) -> None:
        """Wait until the group drops a killed process that fenced this one. Raises FencedError, BrokerTimeoutError."""
        instance_id = self._coordinator.group_instance_id
        session_s = self._group.session_timeout_ms / 1000 + SESSION_SLACK_S
        log.warning(
            "group %s: another process has joined as %s in the same moment. If it was killed, the group removes it, "
            "and this query goes on; for that it waits %.0f s",
            self._group_id, instance_id, session_s,
        )  # fmt: skip
        removed = is_removed(instance_id, self._described, session_s, lambda: self._rounds.ended)
        if removed is None:
            raise BrokerTimeoutError(
                f"looking up group {self._group_id}: no answer within {session_s:.0f} s"
            ) from error
        if not removed:
            raise error
        log.info("group %s: the process that had joined as %s is gone; joining", self._group_id, instance_id)
        self._rounds.forget_claims()
        self._coordinator.reset_generation()

    def _described(self) -> DescribedGroup | None:
        """The group as its coordinator knows it now; None where it does not say."""
        try:
            if self._coordinator.coordinator_unknown():
                self._find_coordinator()
            with translated(f"looking up group {self._group_id}"):
                return described(self._ask_coordinator, self._group_id)
        except (BrokerError, MembershipError) as error:
            log.info("%s", error)
            if isinstance(error.__cause__, kafka_errors.NotCoordinatorError):
                self._coordinator.coordinator_dead(error.__cause__)
            return None

    def _subscribed_before(self) -> frozenset[str] | None:
        """Topics that the member with this instance id subscribes to in the group; None when they cannot be known."""
        instance_id = self._coordinator.group_instance_id
        if instance_id is None or self._rounds.under_way():
            return None
        if self._coordinator.coordinator_unknown():
            self._find_coordinator()
        group = self._described()  # where it is None, the join that follows says why the group cannot be had
        member = None if group is None else group.static_member(instance_id)
        return None if member is None else member.topics

    def _ask_coordinator(self, request: Any) -> Any:
        return self._run(lambda: self._calls.manager.send(request, node_id=self._coordinator.coordinator_id))

    def _find_coordinator(self) -> None:
        self._joining(f"looking up the coordinator of group {self._group_id}", self._know_coordinator)

    def _know_coordinator(self, left_ms: float) -> None:
        if not self._coordinator.ensure_coordinator_ready(timeout_ms=left_ms):
            raise kafka_errors.KafkaTimeoutError

    def _joining(self, doing: str, call: Callable[[float], Any], timeout_ms: float | None = None) -> Any:
        """As :meth:`Calls.retried`; an error that a broker answers becomes a MembershipError."""
        try:
            return self._calls.retried(doing, call, timeout_ms)
        except BrokerTimeoutError:
            raise
        except BrokerError as error:
            match error.__cause__:
                case kafka_errors.InvalidSessionTimeoutError() as cause:
                    raise self._session_timeout_refused(doing, cause) from error
                case kafka_errors.InconsistentGroupProtocolError() if is_of_others(group := self._listed()):
                    raise MembershipError(f"{doing}: {why_not_for_consumers(group)}") from error
                case _:
                    raise MembershipError(str(error)) from error

    def check_type(self) -> None:
        """Refuse a group of a type that has no place for commits of consumers. Where brokers do not say, nothing is
        refused. Raises MembershipError, BrokerError."""
        doing = f"looking up group {self._group_id}"

        def look(left_ms: float) -> Any:
            self._know_coordinator(left_ms)
            return self._listed()

        with contextlib.suppress(AuthorizationError):
            group = self._calls.retried(doing, look)
            if is_of_others(group) and not becomes_free(group):
                raise MembershipError(f"{doing}: {why_not_for_consumers(group)}")

    def _listed(self) -> Any | None:
        """The group in its coordinator's list; None where it is not there, or brokers do not say."""
        try:
            groups = self._ask_coordinator(ListGroupsRequest()).groups
        except kafka_errors.KafkaError:  # an error that is to be said is about something else
            return None
        return next((one for one in groups if one.group_id == self._group_id), None)

    def _session_timeout_refused(self, doing: str, error: Exception) -> MembershipError:
        """The error of a refused session timeout, with the bounds of the broker that refused it."""
        node_id = int(str(self._coordinator.coordinator_id).removeprefix("coordinator-"))
        bounds = session_bounds(
            node_id, lambda request: self._run(lambda: self._calls.manager.send(request, node_id=node_id))
        )
        facts = replace(self._answers.facts, session_bounds=bounds)
        refusal = refusal_of(error)
        return MembershipError(f"{doing}: {refusal.describe(facts) if refusal is not None else error}")

    def join_within(self, timeout_ms: float) -> Generation | None:
        """As :meth:`join`; None when the group has not settled in time: the next call goes on waiting."""

        def settle(patience_ms: float) -> bool:
            deadline = time.monotonic() + patience_ms / 1000
            return self._rounds.settle(lambda: ms_until(deadline))

        try:
            settled = self._joining(f"joining group {self._group_id}", settle, timeout_ms)
        except BrokerTimeoutError:
            return None
        return self._rounds.report() if settled else None

    def request_rejoin(self, claiming: bool = True) -> None:
        """Make the next :meth:`join` send a JoinGroup; a leader's starts a new generation, a follower's does so if it
        differs, as with the claims of sticky strategies. Not `claiming`: it is that of its first join."""
        if not claiming:
            self._rounds.forget_claims()
        self._coordinator.request_rejoin()

    def rejoin_needed(self) -> bool:
        """Whether the group rebalances, membership was lost, or subscribed topics got partitions."""
        return not self._manual and self._rounds.needed()

    def heartbeat(self) -> None:
        """Send a heartbeat now for :meth:`rejoin_needed`; heartbeats in the background report errors."""
        with contextlib.suppress(kafka_errors.KafkaError):
            self._run(self._coordinator._send_heartbeat_request)

    def assigned_by_broker(self, timeout_ms: float) -> DescribedGroup | None:
        """The group as its coordinator knows it, if the broker assigns in it, and says so in this time."""

        def send(request: Any) -> Any:
            node_id = self._coordinator.coordinator_id
            return self._calls.run(lambda: self._calls.manager.send(request, node_id=node_id), timeout_ms)

        if self.knows_coordinator():
            with contextlib.suppress(kafka_errors.KafkaError, BrokerError):
                return assigned_by_broker(send, self._group_id)
        return None

    def lost(self) -> bool:
        """Whether the coordinator has said that this driver is no longer a member."""
        return bool(self._coordinator._generation.is_lost())

    def knows_coordinator(self) -> bool:
        """Whether the coordinator is known and its connection not known to be lost; no I/O."""
        return not self._coordinator.coordinator_unknown()

    def check_not_fenced(self) -> None:
        """Raise the error that a heartbeat got; kafka-python sends none after fencing. FencedError, MembershipError."""
        coordinator = self._coordinator
        refusal = self._answers.heartbeats_refused
        if refusal is not None:
            raise MembershipError(f"heartbeats of group {self._group_id}: {refusal.describe(self._answers.facts)}")
        # While it rejoins, heartbeats rest; that a coordinator is gone ends a join before the state shows it.
        if coordinator.stable() and not coordinator._heartbeat_enabled and not coordinator.rejoining:
            why = advice(FENCED, Request.HEARTBEAT, self._answers.facts)
            raise FencedError(f"heartbeats of group {self._group_id}: {FENCED}: {why}")

    @property
    def timings(self) -> Mapping[Request, Timing]:
        """Durations of the coordinator's answers without an error, by time.monotonic()."""
        return self._answers.timings

    @property
    def failed_rebalances(self) -> int:
        """JoinGroups and SyncGroups that a coordinator refused, other than because it is none, or not yet."""
        return self._answers.failed_rebalances

    def current(self) -> Generation:
        """The generation this member is in; without membership, the partitions of `assign`."""
        if self._manual:
            return Generation(id=-1, member_id="", leader=False, members=None, assignment=self._rounds.owned())
        return self._rounds.current()

    def live_members(self) -> list[str]:
        """Names of the group's members, by its coordinator. Raises BrokerError."""

        def describe(left_ms: float) -> list[str]:
            self._coordinator.ensure_coordinator_ready(timeout_ms=left_ms)
            return [member.name for member in described(self._ask_coordinator, self._group_id).members]

        members: list[str] = self._calls.retried(f"looking up members of group {self._group_id}", describe)
        return members

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        metadata: str,
        generation: int,
        timeout_ms: float | None = None,
        epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> None:
        """Commit under `generation` and no other; without membership if partitions were assigned by hand.

        Retried on retriable errors, for `timeout_ms` (kafka.default.api.timeout.ms).

        `epochs`: leader epochs of the offsets, where they are known.
        Raises MembershipLostError when this driver is no longer in that generation. Raises CommitTimeoutError when the
        time is over: it may have been committed. Raises FencedError, CommitError.
        """
        if not self._manual:
            self.member_in(generation)
        try:
            for part in in_parts(offsets, len(self._group_id) + len(metadata)):
                self._commit_part({tp: (at, metadata, epochs.get(tp, NO_EPOCH)) for tp, at in part}, timeout_ms)
        except MembershipLostError as error:
            if not self._manual:
                raise
            raise CommitError(f"{error}: {WITHOUT_MEMBERSHIP}") from error
        except BrokerTimeoutError as error:
            raise CommitTimeoutError(str(error), error.answer) from error
        except BrokerError as error:
            raise CommitError(str(error)) from error

    def member_in(self, generation: int) -> tuple[str, int, str | None]:
        """Member id, `generation` as the coordinator numbers it, and group.instance.id. Raises MembershipLostError."""
        current = self._coordinator.generation_if_stable()
        if current is None or current.generation_id != self._rounds.number_of(generation):
            raise MembershipLostError(f"generation {generation} of group {self._group_id} is over")
        return current.member_id, current.generation_id, self._coordinator.group_instance_id

    def _commit_part(self, part: Mapping[TopicPartition, tuple[int, str, int]], timeout_ms: float | None) -> None:
        wanted = {KafkaTopicPartition(*tp): OffsetAndMetadata(*committed) for tp, committed in part.items()}
        self._calls.retried(
            f"committing offsets of group {self._group_id}",
            lambda left_ms: self._coordinator.commit_offsets_sync(wanted, timeout_ms=left_ms),
            timeout_ms,
        )

    def leave(self) -> None:
        """Leave the group now, static or not, without waiting for a dead coordinator; a join under way ends."""
        self._rounds.end()
        left_ms = max(LEAVE_MS, self._calls.left_ms)
        Leaving(self._group_id, self._consumer, min(self._connection.request_timeout_ms, left_ms)).leave()

    def close(self) -> None:
        """Stop the I/O thread and close connections; does not leave. Harmless when repeated."""
        self._coordinator.reset_generation()  # or close() would leave for a dynamic member; only leave() may
        super().close()

    def _run(self, call: Callable[[], Any]) -> Any:
        return self._calls.run(call)
