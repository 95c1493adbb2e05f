"""Kafka as the driver sees it: metadata, log offsets, membership, commits."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar

import kafka.errors as kafka_errors
from kafka.protocol.consumer import IsolationLevel, OffsetSpec
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaTopicPartition

from spark_kafka_group.errors import (
    BrokerError,
    BrokerTimeoutError,
    CommitError,
    CommitTimeoutError,
    FencedError,
    JoinTimeoutError,
    MembershipError,
    MembershipLostError,
)
from spark_kafka_group.offsets import OffsetAndTimestamp, TopicPartition
from spark_kafka_group.options import Options
from spark_kafka_group.subscription import Subscription
from spark_kafka_group.timing import Timing
from spark_kafka_group.wire.broker_settings import session_bounds
from spark_kafka_group.wire.connect import (
    API_TIMEOUT,
    REQUEST_TIMEOUT,
    connected_consumer,
    ms_until,
    retried,
    run_within,
    translated,
)
from spark_kafka_group.wire.coordinator_responses import Answers, refusal_of
from spark_kafka_group.wire.epochs import NO_EPOCH, EpochAsked, can_be_asked, ends_of_epochs
from spark_kafka_group.wire.group.joining import Joining
from spark_kafka_group.wire.group.leaving import Leaving
from spark_kafka_group.wire.group.members import described
from spark_kafka_group.wire.group.membership import Committed, Generation, Strategy
from spark_kafka_group.wire.missing import ask_seldom
from spark_kafka_group.wire.reactions import Facts, Request

log = logging.getLogger(__name__)

T = TypeVar("T")
G = TypeVar("G", Generation, Generation | None)

LOOKUP_SLICE = 0.2
"""After this part of kafka.request.timeout.ms without an answer about a log: whether the log still exists is asked."""


LEAVE_MS = 500
"""So long the last request may take, whatever those before it have used up."""

COMMIT_BYTES = 400_000
"""Of records in the offsets topic that one request makes at most; message.max.bytes is 1 MiB by default."""

COMMIT_RECORD_BYTES = 50
"""Of such a record without group, topic and metadata, at most."""


class GroupClient:
    """Kafka as the driver sees it. Nothing joins the group before :meth:`join`.

    Not for several threads: kafka-python's own I/O thread sends heartbeats, everything else is called by one thread.

    Parameters
    ----------
    group_id
        None for metadata and log offsets only.
    instance_id
        Static membership (KIP-345); None for a dynamic member.
    strategies
        Assignment strategies, most preferred first.
    """

    def __init__(
        self,
        options: Options,
        group_id: str | None = None,
        instance_id: str | None = None,
        strategies: Sequence[Strategy] = (),
    ) -> None:
        self._options = options
        self._group_id = group_id
        self._rounds = Joining(group_id, strategies, self._run)
        self._manual = False
        self._ends_at = float("inf")  # when all calls have to be over, by time.monotonic()
        configs: dict[str, Any] = {
            "group_id": group_id,
            "group_instance_id": instance_id,
            "session_timeout_ms": options.session_timeout_ms,
            "heartbeat_interval_ms": options.heartbeat_interval_ms,
            "max_poll_interval_ms": options.max_poll_interval_ms,
            "fetch_max_wait_ms": options.fetch_max_wait_ms,
            "metadata_max_age_ms": options.metadata_max_age_ms,
            "isolation_level": options.isolation_level,
        }
        if strategies:
            configs["partition_assignment_strategy"] = self._rounds.assignors
        self._consumer = connected_consumer(options, "driver", **configs)
        ask_seldom(self._consumer)
        self._coordinator = self._consumer._coordinator
        self._manager = self._consumer._client._manager
        self._knows_epochs = can_be_asked(self._manager)
        self._leader_epochs: dict[tuple[str, int], int] = {}
        self._rounds.attach(self._consumer)
        names = tuple(assignor.name for assignor in self._rounds.assignors)
        self._answers = Answers(self._coordinator, Facts(group_id, instance_id, options.session_timeout_ms, names))
        # A running micro-batch is progress, however long: the client must not leave by itself. The rebalance timeout
        # sent to the broker is the coordinator's own copy of the setting and stays.
        self._coordinator.heartbeat.config["max_poll_interval_ms"] = float("inf")

    def end_within(self, timeout_ms: float) -> None:
        """Let no call take longer than until then: the query ends."""
        self._ends_at = time.monotonic() + timeout_ms / 1000

    # Metadata and log offsets

    def reach(self, timeout_ms: float) -> None:
        """Ask any broker for metadata and, in a group, for the coordinator.

        Raises
        ------
        BrokerTimeoutError
            When none has answered by then.
        BrokerError
        """

        def ask(left_ms: float) -> None:
            run_within(self._manager, left_ms, self._manager.cluster.refresh_metadata)
            if self._group_id is not None and not self._coordinator.ensure_coordinator_ready(timeout_ms=left_ms):
                raise kafka_errors.KafkaTimeoutError

        self._retried("looking for brokers", ask, timeout_ms)

    def brokers(self) -> list[str]:
        """Addresses of the cluster's brokers, as it last told; no I/O."""
        return sorted(f"{broker.host}:{broker.port}" for broker in self._manager.cluster.brokers())

    def partitions(self, subscription: Subscription) -> set[TopicPartition]:
        """What `subscription` names and exists, asked of the cluster now.

        Raises
        ------
        BrokerError
        """
        cluster = self._manager.cluster
        if subscription.pattern is None:
            cluster.set_topics(subscription.named())
        else:
            cluster.need_all_topic_metadata = True
        doing = f"looking up partitions of {subscription.pattern or ', '.join(sorted(subscription.named()))}"

        def refresh(left_ms: float) -> None:
            self._run(cluster.refresh_metadata)
            if cluster.unauthorized_topics:
                raise kafka_errors.TopicAuthorizationFailedError(cluster.unauthorized_topics)

        self._again_and_again(doing, refresh)
        return self.known_partitions(subscription)

    def known_partitions(self, subscription: Subscription) -> set[TopicPartition]:
        """What `subscription` names and exists, as the cluster last told; no I/O."""
        cluster = self._manager.cluster
        if subscription.pattern is None:
            topics = subscription.named()
        else:
            topics = {topic for topic in cluster.topics() if subscription.includes(topic)}
        known = {TopicPartition(t, p) for t in topics for p in cluster.partitions_for_topic(t) or ()}
        return known & subscription.partitions if subscription.manual else known

    def existing(self, tps: Collection[TopicPartition], of_any: bool = False) -> set[TopicPartition]:
        """Those of `tps` that exist, asked of the cluster now.

        Parameters
        ----------
        of_any
            Ask any broker, not the one that is connected: it may be cut off from the others, and not know it.

        Raises
        ------
        BrokerError
        """
        manager = self._manager

        def refresh() -> Any:
            return manager.cluster.refresh_metadata(manager.any_node() if of_any else None)

        self._retried(f"looking up partitions {_named(tps)}", lambda left_ms: self._run(refresh))
        return self._of_known_topics(tps)

    def _of_known_topics(self, tps: Collection[TopicPartition]) -> set[TopicPartition]:
        partitions_of = self._manager.cluster.partitions_for_topic
        return {tp for tp in tps if tp.partition in (partitions_of(tp.topic) or ())}

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """Ids of topics as the cluster last told (KIP-516); those of brokers before Kafka 2.8 are not there. No I/O."""
        ids = {topic: self._manager.cluster.topic_id(topic) for topic in topics}
        return {topic: str(topic_id) for topic, topic_id in ids.items() if topic_id is not None}

    def beginning_offsets(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """First offset of each log; a partition that no longer exists is not in the result."""
        found: dict[TopicPartition, int] = self._log_offsets(
            tps, self._consumer.beginning_offsets, "looking up first offsets"
        )
        return found

    def offsets_at(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """First offset of each log whose record has this timestamp or a later one; None where there is none.

        A partition that no longer exists is not in the result.
        """

        found = self.offsets_for_times(times_ms)
        return {tp: None if record is None else record.offset for tp, record in found.items()}

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """As :meth:`offsets_at`, with the timestamps of these records."""

        def lookup(wanted: Collection[Any], timeout_ms: float) -> Any:
            wanted_times = {tp: times_ms[TopicPartition(tp.topic, tp.partition)] for tp in wanted}
            found = self._consumer.offsets_for_times(wanted_times, timeout_ms=timeout_ms)
            records = {tp: at for tp, at in found.items() if at is not None and at.offset >= 0}
            return {tp: OffsetAndTimestamp(*records[tp][:2]) if tp in records else None for tp in found}

        return self._log_offsets(times_ms, lookup, "looking up offsets of timestamps")

    def end_offsets(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """How far each log may be read: to the offset its next record will get, under read_committed to the last stable
        offset. A partition that no longer exists is not in the result."""

        def lookup(wanted: Collection[Any], timeout_ms: float) -> Any:
            found = self._consumer._fetcher.offsets_by_times(dict.fromkeys(wanted, OffsetSpec.LATEST), timeout_ms)
            if self._knows_epochs:
                self._leader_epochs |= {tp: at.leader_epoch for tp, at in found.items()}
            return {tp: at.offset for tp, at in found.items()}

        found: dict[TopicPartition, int] = self._log_offsets(tps, lookup, "looking up end offsets")
        return found

    def leader_epochs(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Epochs of the leaders that answered the last :meth:`end_offsets`; none before Kafka 2.3. No I/O.

        Every offset up to the end of a log was in the log of that leader.
        """
        known = {tp: self._leader_epochs.get(tp, NO_EPOCH) for tp in tps}
        return {tp: epoch for tp, epoch in known.items() if epoch != NO_EPOCH}

    def epoch_ends(self, asked: Mapping[TopicPartition, EpochAsked]) -> dict[TopicPartition, int | None]:
        """Where the records of leader epochs end in the logs (KIP-320); None where a log's leader does not know.

        A partition that no longer exists, or that has a later leader than was asked, is not in the result.
        """

        def lookup(wanted: Collection[Any], timeout_ms: float) -> Any:
            of = {TopicPartition(*tp): asked[TopicPartition(*tp)] for tp in wanted}
            try:
                return run_within(self._manager, timeout_ms, lambda: ends_of_epochs(self._manager, of))
            except kafka_errors.RetriableError as error:
                raise kafka_errors.KafkaTimeoutError(str(error)) from error

        return self._log_offsets(asked, lookup, "looking up ends of leader epochs")

    def log_ends(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Offset the next record will get, of each log, whatever kafka.isolation.level is; as :meth:`end_offsets`."""
        fetcher = self._consumer._fetcher
        configured, fetcher._isolation_level = fetcher._isolation_level, IsolationLevel.READ_UNCOMMITTED
        try:
            return self.end_offsets(tps)
        finally:
            fetcher._isolation_level = configured

    def _log_offsets(
        self, tps: Collection[TopicPartition], lookup: Callable[..., Any], doing: str
    ) -> dict[TopicPartition, Any]:
        existing = list(tps)
        slice_ms = self._options.request_timeout_ms * LOOKUP_SLICE

        def look_up(left_ms: float) -> dict[TopicPartition, Any]:
            wanted = [KafkaTopicPartition(*tp) for tp in existing]
            try:
                found = lookup(wanted, timeout_ms=min(left_ms, slice_ms)) if wanted else {}
            except kafka_errors.KafkaTimeoutError as error:
                if left_ms <= slice_ms:
                    raise
                self._run(self._manager.cluster.refresh_metadata)
                existing[:] = self._of_known_topics(existing)
                # Once more, of those that are left; if there is no time, this is what is said.
                raise kafka_errors.RequestTimedOutError(*error.args) from None
            return {TopicPartition(tp.topic, tp.partition): offset for tp, offset in found.items()}

        return self._again_and_again(f"{doing} of {_named(tps)}", look_up) if tps else {}

    def _again_and_again(self, doing: str, call: Callable[[float], T]) -> T:
        """As Spark's source: fetchOffset.numRetries attempts, with fetchOffset.retryIntervalMs in between."""

        def attempt() -> T:
            found: T = self._retried(doing, call, self._options.request_timeout_ms, REQUEST_TIMEOUT)
            return found

        for _ in range(self._options.fetch_offset_num_retries - 1):
            try:
                return attempt()
            except BrokerTimeoutError as error:
                log.warning("%s; asking again", error)
                time.sleep(self._options.fetch_offset_retry_interval_ms / 1000)
        return attempt()

    def committed(
        self, tps: Collection[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, Committed]:
        """What the group has committed; a partition without a committed offset is not in the result.

        Raises
        ------
        BrokerError
            Also when `timeout_ms` (kafka.default.api.timeout.ms) is over.
        """
        wanted = [KafkaTopicPartition(*tp) for tp in tps]
        found = self._retried(
            f"looking up committed offsets of group {self._group_id}",
            lambda left_ms: self._coordinator.fetch_committed_offsets(wanted, timeout_ms=left_ms),
            timeout_ms,
        )
        return {
            TopicPartition(tp.topic, tp.partition): Committed(
                o.offset, o.metadata or "", NO_EPOCH if o.leader_epoch is None else o.leader_epoch
            )
            for tp, o in found.items()
        }

    # Membership

    def subscribe(self, subscription: Subscription) -> None:
        """Say what :meth:`join` subscribes to, or which partitions are read without joining. Sends nothing."""
        self._manual = subscription.manual
        if subscription.manual:
            self._consumer.assign([KafkaTopicPartition(*tp) for tp in sorted(subscription.partitions)])
        elif subscription.pattern is not None:
            # kafka-python wants a match at the start of a name.
            self._consumer.subscribe(pattern=f".*?{subscription.pattern}")
            if subscription.delays_ms:
                self._consumer._subscription.subscribed_pattern = _Pattern(subscription)
        else:
            self._consumer.subscribe(sorted(subscription.topics))

    def join(self) -> Generation:
        """Be a member: join, or rejoin when the group rebalances, and take the assignment.

        Waits for the group's other members as any consumer does: as long as the most patient of them lets the group
        wait, which may be longer than this query's own kafka.max.poll.interval.ms.

        Raises
        ------
        FencedError, MembershipError, BrokerError
        """
        timeout_ms = max(self._options.request_timeout_ms, self._options.max_poll_interval_ms + 5_000)
        if self.rejoin_needed() and self._coordinator.coordinator_unknown():
            self._find_coordinator()  # bounded by itself: members may be slow, brokers may not
        deadline = time.monotonic() + timeout_ms / 1000
        at_once_ms = self._options.default_api_timeout_ms
        while (joined := self.join_within(min(ms_until(deadline), at_once_ms))) is None:
            refused = self._answers.last_described()
            if self._coordinator.coordinator_unknown():
                self._find_coordinator()  # or brokers that are away would be taken for slow members
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

        A static member that comes back within its session is given its old assignment, whatever has changed since:
        topics have more partitions, or it subscribes to others. It is told that another member leads, too: the answer
        names the member it replaces. The broker knows better. Asked again, it starts a new generation for a leader,
        which assigns anew; a follower gets the current one, unless its words differ from those it came back with.
        """
        if self._coordinator.group_instance_id is None:
            return join()
        before = self._subscribed_before()
        # kafka-python joins again by itself if the old assignment has topics that are not subscribed to any more, and
        # in the same words it would do so without end.
        self._rounds.vary(True)
        joined = join()
        if joined is None:
            return joined
        if not joined.leader:
            changed = before is not None and before != frozenset(self._consumer.subscription() or ())
            self._rounds.vary(changed)
            self.request_rejoin(claiming=changed)
            joined = join()
        self._rounds.vary(False)
        return joined

    def _subscribed_before(self) -> frozenset[str] | None:
        """What the member under this instance id subscribes to in the group; None when that cannot be known."""
        instance_id = self._coordinator.group_instance_id
        if instance_id is None or self._group_id is None or self._rounds.under_way():
            return None
        if self._coordinator.coordinator_unknown():
            self._find_coordinator()
        try:
            with translated(f"looking up group {self._group_id}"):
                member = described(self._ask_coordinator, self._group_id).static_member(instance_id)
        except (BrokerError, MembershipError) as error:
            log.info("%s", error)  # the join that follows says why the group cannot be had
            return None
        return None if member is None else member.topics

    def _ask_coordinator(self, request: Any) -> Any:
        return self._run(lambda: self._manager.send(request, node_id=self._coordinator.coordinator_id))

    def _find_coordinator(self) -> None:
        def find(left_ms: float) -> None:
            if not self._coordinator.ensure_coordinator_ready(timeout_ms=left_ms):
                raise kafka_errors.KafkaTimeoutError

        self._joining(f"looking up the coordinator of group {self._group_id}", find)

    def _joining(self, doing: str, call: Callable[[float], Any], timeout_ms: float | None = None) -> Any:
        """As :meth:`_retried`; what a broker refuses is membership."""
        try:
            return self._retried(doing, call, timeout_ms)
        except BrokerTimeoutError:
            raise
        except BrokerError as error:
            if not isinstance(error.__cause__, kafka_errors.InvalidSessionTimeoutError):
                raise MembershipError(str(error)) from error
            raise self._session_timeout_refused(doing, error.__cause__) from error

    def _session_timeout_refused(self, doing: str, error: Exception) -> MembershipError:
        """As what a refused session timeout is raised: with the bounds of the broker that refused it."""
        node_id = int(str(self._coordinator.coordinator_id).removeprefix("coordinator-"))
        bounds = session_bounds(
            node_id, lambda request: self._run(lambda: self._manager.send(request, node_id=node_id))
        )
        facts = replace(self._answers.facts, session_bounds=bounds)
        refusal = refusal_of(error)
        return MembershipError(f"{doing}: {refusal.describe(facts) if refusal is not None else error}")

    def join_within(self, timeout_ms: float) -> Generation | None:
        """As :meth:`join`, for so long; None when the group has not settled by then: the next call goes on waiting.

        Raises
        ------
        FencedError, MembershipError, BrokerError
        """

        def settle(patience_ms: float) -> bool:
            deadline = time.monotonic() + patience_ms / 1000
            return self._rounds.settle(lambda: ms_until(deadline))

        try:
            settled = self._joining(f"joining group {self._group_id}", settle, timeout_ms)
        except BrokerTimeoutError:
            return None
        return self._rounds.told() if settled else None

    def request_rejoin(self, claiming: bool = True) -> None:
        """Make the next :meth:`join` send a JoinGroup; the leader's starts a new generation.

        A follower's does so when its words have changed, as under the sticky strategies, which name what it owns; not
        `claiming` anything they are those of its first join.
        """
        if not claiming:
            self._rounds.forget_claims()
        self._coordinator.request_rejoin()

    def rejoin_needed(self) -> bool:
        """Whether the group rebalances, membership was lost, or subscribed topics got partitions."""
        return not self._manual and self._rounds.needed()

    def heartbeat(self) -> None:
        """Send a heartbeat now, so that :meth:`rejoin_needed` knows what the coordinator knows; its errors are left to
        the heartbeats in the background."""
        with contextlib.suppress(kafka_errors.KafkaError):
            self._run(self._coordinator._send_heartbeat_request)

    def lost(self) -> bool:
        """Whether the coordinator has said that this driver is no longer a member."""
        return bool(self._coordinator._generation.is_lost())

    def knows_coordinator(self) -> bool:
        """Whether the coordinator is known and connected, as far as it was noticed; no I/O."""
        return not self._coordinator.coordinator_unknown()

    def check_not_fenced(self) -> None:
        """Notice what only the heartbeats were told: kafka-python stops them when fenced, else goes on, and is silent.

        Raises
        ------
        FencedError, MembershipError
        """
        coordinator = self._coordinator
        refusal = self._answers.heartbeats_refused
        if refusal is not None:
            raise MembershipError(f"heartbeats of group {self._group_id}: {refusal.describe(self._answers.facts)}")
        # While it rejoins, heartbeats rest; that a coordinator is gone ends a join before the state shows it.
        if coordinator.stable() and not coordinator._heartbeat_enabled and not coordinator.rejoining:
            raise FencedError(
                f"another process has joined group {self._group_id} as {coordinator.group_instance_id}: "
                f"this query must not go on"
            )

    @property
    def timings(self) -> Mapping[Request, Timing]:
        """What the coordinator answered without an error, by time.monotonic()."""
        return self._answers.timings

    @property
    def failed_rebalances(self) -> int:
        """JoinGroups and SyncGroups that a coordinator refused, other than because it is none, or not yet."""
        return self._answers.failed_rebalances

    def current(self) -> Generation:
        """The generation this member is in; without membership, what was assigned by hand."""
        if self._manual:
            return Generation(id=-1, member_id="", leader=False, members=None, assignment=self._rounds.owned())
        return self._rounds.current()

    def live_members(self) -> list[str]:
        """Names of the group's members, as its coordinator tells.

        Raises
        ------
        BrokerError
        """

        def describe(left_ms: float) -> list[str]:
            self._coordinator.ensure_coordinator_ready(timeout_ms=left_ms)
            return [member.name for member in described(self._ask_coordinator, self._group_id or "").members]

        members: list[str] = self._retried(f"looking up members of group {self._group_id}", describe)
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

        Parameters
        ----------
        epochs
            Leader epochs of the offsets, where they are known.

        Raises
        ------
        MembershipLostError
            When this driver is no longer in that generation.
        CommitTimeoutError
            When the time is over: it may have been committed.
        FencedError, CommitError
        """
        current = self._coordinator.generation_if_stable()
        if not self._manual and (current is None or current.generation_id != generation):
            raise MembershipLostError(f"generation {generation} of group {self._group_id} is over")
        try:
            for part in _requests(offsets, len(self._group_id or "") + len(metadata)):
                wanted = {
                    KafkaTopicPartition(*tp): OffsetAndMetadata(at, metadata, epochs.get(tp, NO_EPOCH))
                    for tp, at in part
                }
                self._commit_part(wanted, timeout_ms)
        except MembershipLostError as error:
            if not self._manual:
                raise
            raise CommitError(
                f"{error}: without membership nothing can be committed while the group has members. Take another "
                f"kafka.group.id, or subscribe instead of assign"
            ) from error
        except BrokerTimeoutError as error:
            raise CommitTimeoutError(str(error), error.answer) from error
        except BrokerError as error:
            raise CommitError(str(error)) from error

    def _commit_part(self, wanted: Mapping[KafkaTopicPartition, OffsetAndMetadata], timeout_ms: float | None) -> None:
        self._retried(
            f"committing offsets of group {self._group_id}",
            lambda left_ms: self._coordinator.commit_offsets_sync(wanted, timeout_ms=left_ms),
            timeout_ms,
        )

    def leave(self) -> None:
        """Leave the group now, static or not; answers of a dead coordinator are not waited for.

        A join that is under way, in whatever thread, ends; none can follow.
        """
        self._rounds.end()
        if self._group_id is not None:
            left_ms = max(LEAVE_MS, ms_until(self._ends_at))
            Leaving(self._group_id, self._consumer, min(self._options.request_timeout_ms, left_ms)).leave()

    def close(self) -> None:
        """Stop the I/O thread and close connections; does not leave. Harmless when repeated."""
        coordinator = self._coordinator
        coordinator.reset_generation()  # or close() would leave for a dynamic member, which is leave()'s to say
        self._consumer.close(autocommit=False, timeout_ms=self._options.request_timeout_ms)

    def _retried(
        self, doing: str, call: Callable[[float], Any], timeout_ms: float | None = None, limit: str = API_TIMEOUT
    ) -> Any:
        """Call with the milliseconds left until it works, at most `timeout_ms` (kafka.default.api.timeout.ms).

        kafka-python retries most retriable errors itself, but lets some of those through that a lost connection makes.
        """
        limit_s = (timeout_ms or self._options.default_api_timeout_ms) / 1000
        deadline = min(self._ends_at, time.monotonic() + limit_s)
        with translated(doing, self._answers, limit, lambda: self._manager.last_failure):
            return retried(deadline, call, pause_s=self._options.retry_backoff_ms / 1000)

    def _run(self, call: Callable[[], Any]) -> Any:
        return run_within(self._manager, min(self._options.request_timeout_ms, ms_until(self._ends_at)), call)


class _Pattern:
    """Stands where kafka-python has a regular expression: none can say "and the retry topics of these"."""

    def __init__(self, subscription: Subscription) -> None:
        self.match = subscription.includes


def _requests(offsets: Mapping[TopicPartition, int], common_bytes: int) -> Iterator[list[tuple[TopicPartition, int]]]:
    """`offsets` in parts that a broker takes at once.

    A coordinator writes what one request commits as one record batch, which must not outgrow message.max.bytes, and
    repeats group and metadata for each partition.
    """
    part: list[tuple[TopicPartition, int]] = []
    room = COMMIT_BYTES
    for tp, offset in offsets.items():
        size = common_bytes + len(tp.topic) + COMMIT_RECORD_BYTES
        if part and size > room:
            yield part
            part, room = [], COMMIT_BYTES
        part.append((tp, offset))
        room -= size
    yield part


def _named(tps: Collection[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(tps)))
