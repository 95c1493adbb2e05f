"""Leaving a group, also in the middle of a join."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import Any

import kafka.errors as kafka_errors
from kafka import KafkaConsumer
from kafka.protocol.consumer import LeaveGroupRequest

from spark_kafka_group.errors import BrokerError, MembershipError
from spark_kafka_group.wire.client.connect import ms_until, retried, run_within, translated
from spark_kafka_group.wire.group.members import described
from spark_kafka_group.wire.reactions import RETRIED, Request, reaction_to

log = logging.getLogger(__name__)

NAMED_WITHIN_MS = 2_000  # how long a member that leaves during its first join waits for the member id of the group
LOOK_EVERY_S = 0.1

RETRIED_WITHIN_MS = 15_000
"""How long a lost coordinator is looked up again: a cluster notices after 9 s that a broker was killed."""
FIND_MS = 1_000  # time between two checks whether any broker can be reached


class Leaving:
    """How one member leaves its group; no JoinGroup may be sent any more. `timeout_ms`: limit for answers, and for a
    coordinator in place of a dead one."""

    def __init__(self, group_id: str, consumer: KafkaConsumer, timeout_ms: float) -> None:
        self._group_id = group_id
        self._coordinator = consumer._coordinator
        self._manager = consumer._client._manager
        self._timeout_ms = min(timeout_ms, RETRIED_WITHIN_MS)

    def leave(self) -> None:
        """Leave the group now, static or not.

        kafka-python never sends LeaveGroup for a static member. The request names member id and instance id, so that
        a driver that was replaced cannot throw out its successor.

        A request to a broker that stops coordinating the group may be lost: 1. the broker takes it, and goes. 2. The
        group's next coordinator has the member in the group's log, and keeps it. 3. Members that join wait for it until
        its session times out. So the request is repeated at the next coordinator. A second request is harmless: the
        member is unknown then.
        """
        deadline = time.monotonic() + self._timeout_ms / 1000
        try:
            with translated(f"leaving group {self._group_id}"):
                member_id = self._member_id()
                if not member_id:
                    return
                retried(deadline, lambda left_ms: self._leave_as(member_id, left_ms))
        except (BrokerError, MembershipError) as error:
            log.warning("group %s: could not leave, the session will time out: %s", self._group_id, error)
        self._coordinator.reset_generation()

    def _leave_as(self, member_id: str, left_ms: float) -> None:
        deadline = time.monotonic() + left_ms / 1000
        coordinator = self._coordinator
        if not coordinator.ensure_coordinator_ready(timeout_ms=min(FIND_MS, left_ms)):
            if self._manager.reaches_none:
                raise BrokerError(f"no broker can be reached: {self._manager.last_failure}")
            raise kafka_errors.KafkaTimeoutError("no broker says which one coordinates the group")
        identity = LeaveGroupRequest.MemberIdentity(
            member_id=member_id, group_instance_id=coordinator.group_instance_id, reason="the query ended"
        )
        request = LeaveGroupRequest(group_id=self._group_id, member_id=member_id, members=[identity])
        try:
            answered = kafka_errors.for_code(self._ask(request, ms_until(deadline)).error_code)
            if reaction_to(answered, Request.LEAVE) in RETRIED:
                raise answered
        except kafka_errors.KafkaError as error:
            if reaction_to(error, Request.LEAVE) in RETRIED:
                coordinator.coordinator_dead(error)
            raise

    def _member_id(self) -> str:
        """The group's id of this member; empty when the group does not know it.

        The answer to a join has it, and the first join may wait for the other members. A dynamic member gets its id
        before that. A static one can be looked up by its instance id:

        1. The group shows an id under the instance id. 2. If another process had taken this one's place, the broker
        would have answered the join with FENCED_INSTANCE_ID before the look-up. 3. So the member waits a little, looks
        up again, and while the join has no answer, the id is its own.
        """
        if not self._known() and self._coordinator.coordinator_unknown():
            return ""
        deadline = time.monotonic() + min(self._timeout_ms, NAMED_WITHIN_MS) / 1000
        seen: str | None = None
        while not self._known() and self._join_under_way() and time.monotonic() < deadline:
            shown = self._described(ms_until(deadline)) if self._coordinator.group_instance_id else None
            if shown is not None and shown == seen and self._join_under_way():
                return shown
            seen = shown
            time.sleep(LOOK_EVERY_S)
        if self._join_under_way() and not self._known():
            log.warning(
                "group %s: the coordinator has not answered the request to join, so it cannot be cancelled: if the "
                "group still accepts it, other members wait for this one until its session times out",
                self._group_id,
            )
        return self._known()

    def _known(self) -> str:
        return str(self._coordinator._generation.member_id)

    def _join_under_way(self) -> bool:
        task = self._coordinator._join_task
        return task is not None and not task.is_done

    def _described(self, timeout_ms: float) -> str | None:
        """The member id that the group shows under this member's instance id."""
        with contextlib.suppress(kafka_errors.KafkaError):
            group = described(lambda request: self._ask(request, timeout_ms), self._group_id)
            member = group.static_member(self._coordinator.group_instance_id)
            return None if member is None else member.member_id
        return None

    def _ask(self, request: Any, timeout_ms: float | None = None) -> Any:
        node_id = self._coordinator.coordinator_id
        if self._join_under_way():
            # The broker reads no request from the coordinator's connection before it has answered the join.
            node_id = int(str(node_id).removeprefix("coordinator-"))
        return run_within(
            self._manager, timeout_ms or self._timeout_ms, lambda: self._manager.send(request, node_id=node_id)
        )
