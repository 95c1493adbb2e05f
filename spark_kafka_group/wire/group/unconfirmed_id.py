"""What requests of before leave behind: a member id of a coordinator that had lost the group, a killed process's own.

The request of a killed process may reach the coordinator after that of the process that was started in its place:

1. A query is killed. Its JoinGroup waits in the coordinator's socket, as that broker's process stands still, or the
network does. 2. The query is started again, and joins under the same instance id. 3. The coordinator goes on, and reads
the request of the killed process last: the process that lives gets FENCED_INSTANCE_ID. 4. The killed process sends no
heartbeat, so the group removes it when its session times out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import kafka.errors as kafka_errors

from spark_kafka_group.wire.group.members import DescribedGroup

log = logging.getLogger(__name__)


class UnconfirmedId:
    """Keeps a static member from being fenced by itself.

    1. The coordinator's process stands still, and another broker takes the group over. 2. The old one goes on, does not
    know that yet, and ends the session: it answers with UNKNOWN_MEMBER_ID. 3. The member joins anew there, and is given
    a member id. 4. SyncGroup is refused, as the broker hears that it coordinates no more. 5. The member joins with that
    id at the new coordinator, which has its former id under its instance id, and answers with FENCED_INSTANCE_ID. No
    other process has joined. The same happens where a coordinator dies between JoinGroup and SyncGroup, and another
    broker takes the group over.

    So an id that no SyncGroup has confirmed, and that another broker gave, is taken for unknown, and the member joins
    anew, once. If another process has joined at the new coordinator in that time, this member takes its place again,
    and that process is fenced. Where the same broker coordinates again, a member that fenced itself stops.

    `forget_claims`: called when the id is forgotten.
    """

    def __init__(self, group_id: str | None, forget_claims: Callable[[], None]) -> None:
        self._group_id = group_id
        self._forget_claims = forget_claims
        self._confirmed = ""  # the member id of the last SyncGroup that succeeded
        self._given: tuple[str, str] | None = None  # a member id since, and the coordinator that gave it

    def attach(self, coordinator: Any) -> None:
        """Take kafka-python's coordinator."""
        joined, synced = coordinator._process_join_group_response, coordinator._process_sync_group_response

        def process_join(response: Any, sent_s: float) -> Any:
            try:
                result = joined(response, sent_s)
            except kafka_errors.FencedInstanceIdError:
                if not self._given_by_another(coordinator):
                    raise
                self._given = None
                log.info(
                    "group %s: another broker has taken the group over during the join; joining as a new member",
                    self._group_id,
                )
                self._forget_claims()
                coordinator.reset_generation()
                raise kafka_errors.UnknownMemberIdError from None
            if response.member_id != self._confirmed and coordinator.coordinator_id is not None:
                self._given = response.member_id, coordinator.coordinator_id
            return result

        def process_sync(response: Any, sent_s: float) -> Any:
            assignment = synced(response, sent_s)
            self._confirmed, self._given = coordinator._generation.member_id, None
            return assignment

        coordinator._process_join_group_response = process_join
        coordinator._process_sync_group_response = process_sync

    def _given_by_another(self, coordinator: Any) -> bool:
        """Whether the member id of this join was given by another broker, and is not confirmed."""
        if self._given is None or coordinator.coordinator_id is None:
            return False
        member_id, giver = self._given
        return bool(member_id == coordinator._generation.member_id and giver != coordinator.coordinator_id)


LOOK_EVERY_S = 0.5
AWAY_S = 2.0  # a coordinator that answers after more than this time may have stood still
REBALANCING = "PreparingRebalance"  # in this state the coordinator removes no member that has joined


def is_removed(
    instance_id: str, look: Callable[[], DescribedGroup | None], session_s: float, ended: Callable[[], bool]
) -> bool | None:
    """Whether the group removes the process that has joined under `instance_id`, as it sends no heartbeat.

    None where the group could not be asked at the end of the wait.

    `look`: asks for the group; None when it cannot be known now.
    `session_s`: how long to wait; anew after a rebalance, and after the coordinator was away.
    `ended`: whether not to wait any longer.
    """
    holder: str | None = None
    away, until = False, time.monotonic() + session_s
    while not ended() and time.monotonic() < until:
        asked = time.monotonic()
        group = look()
        away |= time.monotonic() - asked > AWAY_S
        if group is not None:
            member = group.static_member(instance_id)
            if member is None:
                return True
            if holder not in (None, member.member_id):
                return False  # a process has joined meanwhile, so it lives
            holder = member.member_id
            if away or group.state == REBALANCING:  # another coordinator begins all sessions anew
                until = time.monotonic() + session_s
        away = group is None
        time.sleep(LOOK_EVERY_S)
    return None if away else False
