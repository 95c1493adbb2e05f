"""How long a broker may be silent before its connection is given up, by what it was asked.

kafka.request.timeout.ms would be the time of one request, and is as long as most calls may take with their retries. A
cut network sends no RST, so a request to a broker that is gone would use all of it, and none would be left to ask the
broker that took over. What a living broker answers at once is therefore given up sooner, and asked again elsewhere.
"""

from __future__ import annotations

from typing import Any

ANY_BROKER = {"MetadataRequest", "FindCoordinatorRequest"}
"""What every broker can answer, from memory."""

ANY_BROKER_MS = 5_000.0

ONE_BROKER = {
    "HeartbeatRequest", "LeaveGroupRequest", "DescribeGroupsRequest", "ConsumerGroupDescribeRequest",
    "OffsetCommitRequest", "OffsetFetchRequest", "ListOffsetsRequest", "OffsetForLeaderEpochRequest",
}  # fmt: skip
"""What only the coordinator or a leader answers. A commit waits for replicas, 5 s unless the broker's
offsets.commit.timeout.ms says otherwise. JoinGroup and SyncGroup wait for other members, and are in neither set."""

ONE_BROKER_MS, PART_OF_TIMEOUT = 10_000.0, 3
LEAST_HEARTBEAT_MS = 1_000.0
TCP_CONNECT_S = 5.0
"""A SYN is sent three times in that time: whoever has not answered then is not there."""


def patience_ms(request: Any, request_timeout_ms: float, session_timeout_ms: float | None) -> float:
    """How long an answer to `request` may take: never longer than kafka.request.timeout.ms.

    A heartbeat has to be sent again before the session is over, whatever the timeout says.
    """
    kind = type(request).__name__
    if kind in ANY_BROKER:
        return min(request_timeout_ms, max(ANY_BROKER_MS, request_timeout_ms / (2 * PART_OF_TIMEOUT)))
    if kind not in ONE_BROKER:
        return request_timeout_ms
    patience = min(request_timeout_ms, max(ONE_BROKER_MS, request_timeout_ms / PART_OF_TIMEOUT))
    if kind == "HeartbeatRequest" and session_timeout_ms is not None:
        return min(patience, max(LEAST_HEARTBEAT_MS, session_timeout_ms / PART_OF_TIMEOUT))
    return patience
