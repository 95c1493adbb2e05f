"""Joining a group with kafka-python's coordinator, and the steps of a join that kafka-python leaves out or gets wrong.

A leader assigns nothing to members whose subscription cannot be read, and says so.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import kafka.errors as kafka_errors
from kafka import KafkaConsumer
from kafka.coordinator.base import MemberState

from spark_kafka_group.assignors import Strategy
from spark_kafka_group.errors import MembershipError
from spark_kafka_group.text.foreign_text import printable
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.client.reachability import address
from spark_kafka_group.wire.group.member_metadata import subscribed_to, usable
from spark_kafka_group.wire.group.members import described
from spark_kafka_group.wire.group.membership import Assignor, Generation
from spark_kafka_group.wire.group.renumbered import Renumbered
from spark_kafka_group.wire.group.unconfirmed_id import UnconfirmedId

log = logging.getLogger(__name__)


class UnreadableMembers:
    """The members of a group that a leader cannot assign anything to. Any program may join with any bytes. If they
    ended the assignment with an error, as in kafka-python, that program would stop each query that leads its group.
    `send`: sends a request to the group's coordinator and returns its response."""

    def __init__(self, group_id: str | None, send: Callable[[Any], Any]) -> None:
        self._group_id = group_id
        self._send = send
        self._now: set[str] = set()  # in the last assignment
        self._reported: set[str] = set()

    def replaced(self, members: Sequence[Any]) -> Sequence[Any]:
        """Members of a JoinGroup response, with subscriptions by which kafka-python can assign."""
        self._now = set()
        for member in members:
            subscription = usable(bytes(member.metadata or b""))
            if subscription is None:
                self._now.add(member.member_id)
            member.metadata = subscribed_to(()) if subscription is None else subscription
        return members

    def report(self) -> None:
        """Log each of them once."""
        new = sorted(self._now - self._reported)
        self._reported = self._now
        hosts = self._hosts() if new else {}
        for member_id in new:
            log.warning(
                "group %s: the subscription of member %s on %s cannot be read, so it gets no partitions: stop that "
                "program, or give it a group of its own",
                self._group_id, printable(member_id), printable(hosts.get(member_id, "an unknown host")),
            )  # fmt: skip

    def _hosts(self) -> dict[str, str]:
        with contextlib.suppress(kafka_errors.KafkaError):
            return {member.member_id: member.host for member in described(self._send, self._group_id or "").members}
        return {}


LOOK_AGAIN_MS = 5_000.0  # the pause between two lookups of the coordinator while a join waits


class Joining:
    """The rounds of JoinGroup and SyncGroup of one member, and its claims in them. `strategies`: assignment strategies,
    most preferred first; kafka-python gets the :attr:`assignors` for them. `run`: runs a call on kafka-python's loop,
    bounded. `ended`: whether the member joins no more."""

    def __init__(
        self, group_id: str | None, strategies: Sequence[Strategy], run: Callable[[Callable[[], Any]], Any]
    ) -> None:
        self.assignors = [Assignor(strategy, self._remember_metadata) for strategy in strategies]
        self._group_id = group_id
        self._run = run
        self.ended = False
        self._unbroken: frozenset[TopicPartition] = frozenset()
        self._seen: tuple[str, int] | None = None  # member id and generation entered last
        self._waiting: tuple[Any, Any] | None = None  # a join under way, and the broker it was sent to
        self._looked_s = 0.0  # last lookup of the coordinator, or the start of that join
        self._looked_up: set[str] = set()  # topics of other members whose metadata was asked for
        self._unreadable = UnreadableMembers(group_id, self._ask)
        self._leader: str | None = None  # that the last JoinGroup named; empty where the broker assigns
        self._renumbered = Renumbered(group_id, lambda: self._leader == "", self._go_on_as)

    def attach(self, consumer: KafkaConsumer) -> None:
        """Take the consumer that was made with :attr:`assignors`."""
        self._consumer = consumer
        self._coordinator = consumer._coordinator
        self._manager = consumer._client._manager
        assign = self._coordinator._perform_assignment
        self._coordinator._perform_assignment = lambda leader, protocol, members: assign(
            leader, protocol, self._unreadable.replaced(members)
        )
        UnconfirmedId(self._group_id, self.forget_claims).attach(self._coordinator)
        joined = self._coordinator._process_join_group_response

        def process(response: Any, sent_s: float) -> None:
            joined(response, sent_s)
            self._leader = response.leader

        self._coordinator._process_join_group_response = process
        self._renumbered.attach(self._coordinator, self._manager)

    def number_of(self, generation: int) -> int:
        """The number by which the coordinator knows a generation that was reported."""
        return self._renumbered.now(generation)

    def _go_on_as(self, number: int) -> None:
        """The generation that was entered last has another number now, and no other has begun."""
        if self._seen is not None:
            self._seen = (self._seen[0], number)

    def needed(self) -> bool:
        """Whether the group rebalances, membership was lost, or subscribed topics got partitions."""
        return bool(self._coordinator.need_rejoin()) or self._coordinator.generation_if_stable() is None

    def settle(self, left_ms: Callable[[], float]) -> bool:
        """Join until the group rests; False when time is over: the next call goes on. Raises MembershipError."""
        while self.needed():
            if self.ended:
                raise MembershipError(f"the query was stopped, and leaves group {self._group_id}")
            if self._coordinator._generation.is_lost():
                self.forget_claims()
            patience_ms = left_ms()
            slice_ms = min(patience_ms, LOOK_AGAIN_MS)
            if not (self._take_finished() or self._coordinator.ensure_active_group(timeout_ms=slice_ms)):
                self._follow_coordinator(slice_ms)
                if slice_ms == patience_ms:
                    return False
            elif not self.ended:
                self._entered()
                self._follow_up()
        return True

    def _follow_coordinator(self, waited_ms: float) -> None:
        """Join at another broker, if the one that has not answered yet coordinates the group no more.

        1. The coordinator holds a JoinGroup back until other members join, which takes minutes. 2. The group moves to
        another broker, and the first one never answers. 3. Its silence looks like step 1, so the coordinator is looked
        up while the join waits. 4. If it is another broker, the old connection is closed, which ends the join there,
        and the next call joins at the new one.

        Callers that wait for short times again and again, as between triggers, look up as often as one that waits long.
        """
        coordinator, cluster = self._coordinator, self._manager.cluster
        task = coordinator._join_task
        if task is None or task.is_done:
            return
        if self._waiting is None or self._waiting[0] is not task:
            node = cluster.broker_metadata(coordinator.coordinator_id)
            if node is None:
                return
            self._waiting, self._looked_s = (task, node), time.monotonic() - waited_ms / 1000
        if time.monotonic() - self._looked_s < LOOK_AGAIN_MS / 1000:
            return
        self._looked_s = time.monotonic()
        asked = self._waiting[1]
        try:
            now = cluster.broker_metadata(self._run(coordinator._send_group_coordinator_request))
        except kafka_errors.KafkaError:
            return
        conn = self._manager._conns.get(asked.node_id)
        if conn is not None and (asked.host, asked.port) != (now.host, now.port):
            moved = kafka_errors.KafkaConnectionError(
                f"group {self._group_id} has moved to {address(now.host, now.port)}"
            )
            self._run(lambda: conn.close(moved))

    def end(self) -> None:
        """Claim nothing any more, and send no JoinGroup.

        kafka-python goes on with a join when the call that began it was interrupted: 1. SIGTERM ends the call. 2. The
        member leaves. 3. The broker answers the JoinGroup that waits there with UNKNOWN_MEMBER_ID. 4. kafka-python
        joins as a new member, without a process behind it, and keeps partitions until its session times out.
        """
        self.forget_claims()

        async def refuse() -> None:
            raise kafka_errors.Cancelled

        async def end() -> None:  # on the loop of joins, so that none is between this and its request
            self.ended = True
            self._coordinator.need_rejoin = lambda: False
            self._coordinator._do_join_and_sync_async = refuse

        self._manager.run(end)

    def report(self) -> Generation:
        """The generation this member is in, for the caller: from now on all its partitions count as owned without a
        break."""
        generation = self.current()
        self._unbroken = generation.assignment
        return generation

    def current(self) -> Generation:
        generation, assignor = self._coordinator._generation, self._elected()
        leader = bool(self._coordinator._is_leader)
        view = assignor.view if assignor is not None and leader else None
        return Generation(
            id=generation.generation_id,
            member_id=generation.member_id,
            leader=leader,
            members=view.members if view is not None else None,
            assignment=self.owned(),
            strategy=generation.protocol or "",
            unbroken=self._unbroken,
            by_broker=self._leader == "",
        )

    def owned(self) -> frozenset[TopicPartition]:
        return frozenset(TopicPartition(tp.topic, tp.partition) for tp in self._consumer.assignment())

    def forget_claims(self) -> None:
        """Claim nothing at the next join."""
        for assignor in self.assignors:
            assignor.forget()

    def vary(self, varying: bool) -> None:
        """Have each JoinGroup differ from the one before, or not: one that differs has a follower start a rebalance."""
        for assignor in self.assignors:
            assignor.varying = varying

    def under_way(self) -> bool:
        """Whether a JoinGroup has been sent and is not answered."""
        task = self._coordinator._join_task
        return task is not None and not task.is_done

    def _take_finished(self) -> bool:
        """Take a join that ended between two calls. Returns whether there was one.

        1. A call begins a join, and its time ends. 2. The join goes on, and succeeds. 3. The next call finds the
        finished join. kafka-python would drop it and join once more, which is one more rebalance where the leader does
        it. So its result is taken here.
        """
        coordinator = self._coordinator
        task = coordinator._join_task
        if task is None or not task.is_done or not task.succeeded():
            return False

        async def finish() -> None:
            coordinator._join_task = None
            with coordinator._lock:
                coordinator.rejoining = coordinator.rejoin_needed = False
                coordinator.state = MemberState.STABLE
                coordinator._enable_heartbeat()
            joined = coordinator._generation
            await coordinator._on_join_complete_async(
                joined.generation_id, joined.member_id, joined.protocol, task.value
            )

        self._manager.run(finish)
        return True

    def _entered(self) -> None:
        """Keep the partitions that were owned in each generation since :meth:`report`; lead the group again."""
        before, now = self._seen, self._coordinator._generation
        followed = before is not None and now.member_id == before[0] and now.generation_id <= before[1] + 1
        self._unbroken = self._unbroken & self.owned() if followed else frozenset()
        self._seen = (now.member_id, now.generation_id)
        self._renumbered.forget()
        if before is not None and before[0] != now.member_id and self._led_by_its_former_id():
            # As in GroupClient.join_first: 1. this member joined as a new one, while the coordinator still had it under
            # its instance id, 2. the answer names a replaced id as leader, so nobody leads, 3. it joins once more.
            self.forget_claims()
            self._coordinator.request_rejoin()

    def _led_by_its_former_id(self) -> bool:
        """Whether JoinGroup named another id of this static member, made of the instance id and a UUID, as leader."""
        leader, now = self._leader or "", self._coordinator._generation.member_id
        ours = leader.startswith(f"{self._coordinator.group_instance_id}-") and len(leader) == len(now)
        return bool(ours and leader != now)

    def _follow_up(self) -> None:
        """Do the steps after a SyncGroup that kafka-python leaves out. They may ask for another round."""
        assignor = self._elected()
        for other in self.assignors:
            if other is not assignor:
                other.forget()
        if assignor is None:
            return
        if assignor.cooperative and assignor.claimed - self.owned():
            # KIP-429: 1. this member claimed partitions, 2. the leader moved them, so no member owns them in this
            # generation, 3. this member joins without claiming them, 4. the next assignment gives them to another.
            self._coordinator.request_rejoin()
        self._unreadable.report()
        view = assignor.view
        if self._coordinator._is_leader and view is not None:
            if view.unknown_topics - self._looked_up:
                # 1. Another member subscribes to a topic that this leader does not read. 2. The leader assigns without
                # its partitions, as it lacks the metadata. 3. It asks for them now. 4. kafka-python's leader sees that
                # they differ from those of the assignment, and rejoins.
                self._looked_up |= view.unknown_topics
                self._run(self._manager.cluster.refresh_metadata)
            if view.unassigned_topics:
                log.warning(
                    "group %s: no member reads all partitions of %s",
                    self._group_id,
                    printable(", ".join(sorted(view.unassigned_topics))),
                )

    def _ask(self, request: Any) -> Any:
        return self._run(lambda: self._manager.send(request, node_id=self._coordinator.coordinator_id))

    def _remember_metadata(self) -> None:
        """Keep the metadata of an assignment; a leader rejoins when newer metadata differ.

        kafka-python keeps those of the last refresh instead, and rejoins without end: 1. the leader waits for others to
        join, 2. a refresh in that time covers the leader's own topics only, 3. the assignment needs the topics of all
        members, 4. the metadata differ from those of step 2, so the leader rejoins, and step 1 follows.
        """
        coordinator = self._coordinator
        snapshot = coordinator._build_metadata_snapshot(coordinator._subscription, self._manager.cluster)
        coordinator._metadata_snapshot = coordinator._assignment_snapshot = snapshot

    def _elected(self) -> Assignor | None:
        """The assignor of the group's strategy."""
        protocol = self._coordinator._generation.protocol
        return next((assignor for assignor in self.assignors if assignor.name == protocol), None)
