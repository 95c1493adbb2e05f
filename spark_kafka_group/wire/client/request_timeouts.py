"""How long a broker may be silent before its connection is given up, by kind of request.

kafka.request.timeout.ms would be the time of one request, and is as long as most calls may take with their retries. A
cut network sends no RST, so a request to a broker that is gone would use all of it, and none would be left to ask the
broker that took over. A request that a live broker answers at once is therefore given up sooner, and sent to another
broker.

A broker that is slow, as under load, would be given up again and again. Each time it is waited for twice as long as
before: who takes a new connection and greets is there, so a broker that is gone costs nothing by that.

A connection is authenticated again before a broker's connections.max.reauth.ms or the life of its token is over.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import kafka.errors as kafka_errors
from kafka.net.connection import SaslReauthenticator

ANY_BROKER = {"MetadataRequest", "FindCoordinatorRequest"}  # requests that every broker can answer, from memory

ANY_BROKER_MS = 5_000.0

ONE_BROKER = {
    "HeartbeatRequest", "LeaveGroupRequest", "DescribeGroupsRequest", "ConsumerGroupDescribeRequest",
    "OffsetCommitRequest", "OffsetFetchRequest", "ListOffsetsRequest", "OffsetForLeaderEpochRequest",
}  # fmt: skip
"""Requests that only the coordinator or a leader answers. A commit waits for replicas, 5 s unless the broker's
offsets.commit.timeout.ms says otherwise. JoinGroup and SyncGroup wait for other members, and are in neither set."""

ONE_BROKER_MS, PART_OF_TIMEOUT = 10_000.0, 3
LONGER, PART_OF_SESSION = 2, 2 / 3
"""The factor by which a broker that was given up is waited for longer; and the part of a session that this takes at
most for a heartbeat."""
LEAST_HEARTBEAT_MS = 1_000.0
TCP_CONNECT_S = 5.0  # time for three SYNs: a host that answers none of them is gone


def patience_ms(request: Any, request_timeout_ms: float, session_timeout_ms: float | None) -> float:
    """How long an answer may take: kafka.request.timeout.ms, but a heartbeat's has to be repeated in the session."""
    kind = type(request).__name__
    if kind in ANY_BROKER:
        return min(request_timeout_ms, max(ANY_BROKER_MS, request_timeout_ms / (2 * PART_OF_TIMEOUT)))
    if kind not in ONE_BROKER:
        return request_timeout_ms
    patience = min(request_timeout_ms, max(ONE_BROKER_MS, request_timeout_ms / PART_OF_TIMEOUT))
    if kind == "HeartbeatRequest" and session_timeout_ms is not None:
        return min(patience, max(LEAST_HEARTBEAT_MS, session_timeout_ms / PART_OF_TIMEOUT))
    return patience


def connecting_ms(setup_ms: float, session_timeout_ms: float | None, failed: int) -> float:
    """How long an attempt to connect to the coordinator may take, after so many that failed; at most `setup_ms`.
    Heartbeats wait for it. The kernel of a process that hangs accepts connections, and the process answers none."""
    if session_timeout_ms is None:
        return setup_ms
    return min(setup_ms, max(LEAST_HEARTBEAT_MS, session_timeout_ms / PART_OF_TIMEOUT) * float(LONGER**failed))


class Patience:
    """How long brokers may take, each for each kind of request: longer where one was given up. For one thread."""

    def __init__(self, request_timeout_ms: float, session_timeout_ms: float | None) -> None:
        self._request_timeout_ms = request_timeout_ms
        self._session_timeout_ms = session_timeout_ms
        self._given_up: dict[tuple[Hashable, str], int] = {}  # how often in a row

    def timeout_ms_of(self, request: Any, node_id: Hashable) -> float:
        """Milliseconds until `request` to this node is given up."""
        least = patience_ms(request, self._request_timeout_ms, self._session_timeout_ms)
        times = self._given_up.get((node_id, type(request).__name__), 0)
        if not times:
            return least
        most: float = self._request_timeout_ms
        if type(request).__name__ == "HeartbeatRequest" and self._session_timeout_ms is not None:
            most = min(most, self._session_timeout_ms * PART_OF_SESSION)
        return max(least, min(most, least * float(LONGER**times)))

    def ended(self, request: Any, node_id: Hashable, error: Exception | None, took_ms: float) -> None:
        """Take note of how `request` ended: with an answer, or with an error instead of one."""
        key = node_id, type(request).__name__
        if isinstance(error, kafka_errors.RequestTimedOutError):
            self._given_up[key] = self._given_up.get(key, 0) + 1
        elif error is None and took_ms < patience_ms(request, self._request_timeout_ms, self._session_timeout_ms):
            self._given_up.pop(key, None)


class ReauthenticationError(kafka_errors.KafkaConnectionError):  # type: ignore[misc]
    """Ends a connection that could not be authenticated again. The next one says whether credentials are wrong."""


class Reauthenticator(SaslReauthenticator):  # type: ignore[misc]
    """kafka-python's, whose failure is the loss of a connection, as any other.

    kafka-python fails requests that wait meanwhile with the cause, which would end a query: 1. A token has a second to
    live, as its endpoint is away. 2. The connection is authenticated again with it, and soon once more. 3. A broker
    takes that within a second for a request out of order: ILLEGAL_SASL_STATE.
    """

    async def _do_reauth(self) -> None:
        try:
            await super()._do_reauth()
        except Exception as error:
            raise ReauthenticationError(f"authenticating again: {error}") from error
