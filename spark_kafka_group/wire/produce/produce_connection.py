"""Produce over a socket that never blocks: requests go as the broker takes them, responses are taken as they come."""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Collection, Mapping
from typing import Generic, NamedTuple, TypeVar

from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.broker_connection import BrokerConnection
from spark_kafka_group.wire.client.reachability import AnswerError
from spark_kafka_group.wire.produce.produce_messages import (
    LAST_IN_TRANSACTIONS,
    Batch,
    ProducedPartition,
    ProduceSettings,
    produced,
    request_parts,
)

T = TypeVar("T")

LARGEST_RESPONSE = 16 << 20
"""Most bytes that a response may have: a request has a few partitions, and a broker some words about each."""
RECEIVED_AT_ONCE = 1 << 16
MOST_PARTS = 512  # the most parts that are handed to the kernel in one call; it takes 1024
WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Answer(NamedTuple, Generic[T]):
    """A response."""

    asked: T  # as given with its request
    partitions: list[ProducedPartition]


class _InFlight(NamedTuple, Generic[T]):
    correlation_id: int
    version: int
    sent_s: float
    asked: T
    partitions: Collection[TopicPartition]


class ProduceConnection(BrokerConnection, Generic[T]):
    """A connection to one broker that speaks Produce, in `version` of the API."""

    def __init__(
        self,
        sock: socket.socket,
        client_id: str,
        version: int,
        lifetime_s: float | None = None,
        made_to: tuple[str, int] | None = None,
    ) -> None:
        super().__init__(sock, lifetime_s, made_to)
        sock.setblocking(False)
        self.version = version
        self._client_id = client_id
        self._encrypted = isinstance(sock, ssl.SSLSocket)
        self._to_send: deque[memoryview] = deque()
        self._unanswered: deque[_InFlight[T]] = deque()
        self._received = bytearray()
        self._broken: OSError | None = None

    @property
    def idle(self) -> bool:
        """Whether every request is sent, and has had its response read."""
        return not self._unanswered and not self._to_send

    @property
    def in_flight(self) -> int:
        """How many requests have had no response yet."""
        return len(self._unanswered)

    @property
    def asked(self) -> list[T]:
        """What was given with requests that have had no response."""
        return [request.asked for request in self._unanswered]

    @property
    def unsent(self) -> bool:
        """Whether the broker has not taken all bytes yet."""
        return bool(self._to_send)

    @property
    def oldest_s(self) -> float | None:
        """When the oldest request was sent that has had no response, by the clock that it was sent by; None without."""
        return self._unanswered[0].sent_s if self._unanswered else None

    def throttled_s(self, at_most_s: float) -> float:
        """How long the broker wants the next request to wait (KIP-219)."""
        return self._throttled_s(at_most_s)

    def send(
        self, batches: Mapping[TopicPartition, Batch], settings: ProduceSettings, asked: T, now_s: float | None = None
    ) -> None:
        """Begin to send a request; its answer comes with `asked`. Batches must not change until then. With acks of 0 no
        answer comes: the request is over when it is sent. Raises OSError."""
        correlation_id = self._next_correlation_id()
        version = self.version if settings.transactional_id is None else min(self.version, LAST_IN_TRANSACTIONS)
        self._to_send.extend(request_parts(batches, version, correlation_id, self._client_id, settings))
        if settings.acks != "0":
            sent_s = time.monotonic() if now_s is None else now_s
            self._unanswered.append(_InFlight(correlation_id, version, sent_s, asked, batches.keys()))
        self.write()

    def write(self) -> None:
        """Send as many bytes as the broker takes now. Raises OSError."""
        waiting = self._to_send
        while waiting:
            try:
                if self._encrypted:
                    sent = self._sock.send(waiting[0])
                else:
                    sent = self._sock.sendmsg([waiting[n] for n in range(min(len(waiting), MOST_PARTS))])
            except WOULD_BLOCK:
                return
            while waiting and sent >= len(waiting[0]):
                sent -= len(waiting.popleft())
            if sent:
                waiting[0] = waiting[0][sent:]

    def read(self) -> list[Answer[T]]:
        """The responses that have come, oldest first. Raises OSError when the connection, or a response, is broken."""
        answers: list[Answer[T]] = []
        try:
            self._read_into(answers)
        except OSError as error:
            self._broken = error
        if self._broken is not None and not answers:
            raise self._broken  # answers that came before are returned first
        return answers

    def _read_into(self, answers: list[Answer[T]]) -> None:
        while self._broken is None:
            try:
                data = self._sock.recv(RECEIVED_AT_ONCE)
            except WOULD_BLOCK:
                return
            if not data:
                raise ConnectionError("the broker closed the connection")
            self._received += data
            while (frame := self._next_frame()) is not None:
                answers.append(self._answer(frame))

    def _next_frame(self) -> bytes | None:
        if len(self._received) < 4:
            return None
        (size,) = struct.unpack_from(">i", self._received)
        if not 4 <= size <= LARGEST_RESPONSE:
            raise AnswerError(f"a response gives its length as {size}, and at most {LARGEST_RESPONSE} are possible")
        if len(self._received) < 4 + size:
            return None
        frame = bytes(memoryview(self._received)[4 : 4 + size])
        del self._received[: 4 + size]
        return frame

    def _answer(self, frame: bytes) -> Answer[T]:
        if not self._unanswered:
            raise AnswerError("a response that nothing asked for")
        correlation_id, version, _, asked, expected = self._unanswered[0]
        if struct.unpack_from(">i", frame) != (correlation_id,):
            raise AnswerError("the response belongs to another request")
        try:
            throttle_ms, partitions = produced(memoryview(frame)[4:], version)
        except (ValueError, struct.error) as error:
            raise AnswerError(f"not a produce response: {error}") from error
        if len(partitions) != len(expected) or {partition.tp for partition in partitions} != set(expected):
            raise AnswerError("the response is about other partitions than its request")
        self._unanswered.popleft()
        self._throttle(throttle_ms)
        return Answer(asked, partitions)


def wait(connections: Collection[ProduceConnection[T]], timeout_s: float, others: Collection[int] = ()) -> None:
    """Wait, at most so long, until a connection can be read, or takes what waits to be sent, or another is ready."""
    if any(connection.decrypted for connection in connections):
        return
    poll = select.poll()
    for connection in connections:
        poll.register(connection, select.POLLIN | (select.POLLOUT if connection.unsent else 0))
    for descriptor in others:
        poll.register(descriptor, select.POLLIN)
    poll.poll(max(0.0, timeout_s) * 1000)
