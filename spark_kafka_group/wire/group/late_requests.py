"""The request of a killed process that reaches the coordinator after that of the process that was started in its place.

1. A query is killed. Its JoinGroup waits in the coordinator's socket, as that broker's process stands still, or the
network does. 2. The query is started again, and joins under the same instance id. 3. The coordinator goes on, and reads
the request of the killed process last: the process that lives gets FENCED_INSTANCE_ID. 4. The killed process sends no
heartbeat, so the group removes it when its session times out.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from spark_kafka_group.wire.group.members import DescribedGroup

LOOK_EVERY_S = 0.5
AWAY_S = 2.0
"""A coordinator that answers after more than this time may have stood still."""
REBALANCING = "PreparingRebalance"
"""In this state the coordinator removes no member that has joined."""


def is_removed(
    instance_id: str, look: Callable[[], DescribedGroup | None], session_s: float, ended: Callable[[], bool]
) -> bool | None:
    """Whether the group removes the process that has joined under `instance_id`, as it sends no heartbeat.

    None where the group could not be asked at the end of the wait.

    Parameters
    ----------
    look
        Asks for the group; None when it cannot be known now.
    session_s
        How long to wait; anew after a rebalance, and after the coordinator was away.
    ended
        Whether not to wait any longer.
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
