"""Fetch over a blocking socket, request by request."""

from __future__ import annotations

import selectors
import socket
import ssl
import struct
import time
from collections.abc import Collection, Mapping
from types import MappingProxyType

import kafka.errors as kafka_errors

from spark_kafka_group.options import ClientOptions
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.broker_connection import BrokerConnection, Deadline
from spark_kafka_group.wire.client.connect import LARGEST_BATCH
from spark_kafka_group.wire.client.reachability import AnswerError
from spark_kafka_group.wire.fetch.request import LEADERS_ONLY_TO, FetchRequests
from spark_kafka_group.wire.fetch.response import IDS_FROM, FetchedPartition, fetched, names_by_id

OVERDUE_S = 5.0
"""A response is overdue if it has not begun this long after kafka.fetch.max.wait.ms, or pauses for this long."""
SHORTEST_S = 0.001  # the shortest time limit: sockets take less than a microsecond for 0, which means no limit
KEPT = 1 << 20  # the bytes of a connection's buffer that are kept, however small responses become


class FetchConnection(BrokerConnection):
    """A blocking connection to one broker that speaks Fetch; requests may be sent ahead of reading responses.
    `patience_s`: how long a response may take to begin, or pause, before TimeoutError, where that is longer than usual:
    a broker has been slow."""

    def __init__(
        self,
        sock: socket.socket,
        options: ClientOptions,
        role: str,
        version: int,
        lifetime_s: float | None = None,
        patience_s: float = 0.0,
        made_to: tuple[str, int] | None = None,
    ) -> None:
        super().__init__(sock, lifetime_s, made_to)
        self._options = options
        client_id = f"{options.connection.client_id}-{role}"
        self._by_ids = FetchRequests(options.fetching, client_id, version) if version >= IDS_FROM else None
        self._of_any_replica = FetchRequests(options.fetching, client_id, min(version, IDS_FROM - 1))
        self._of_leaders = FetchRequests(options.fetching, client_id, min(version, LEADERS_ONLY_TO))
        # Where the kernel knows the limit itself, one call receives a whole response, and no poll comes before.
        self._whole = 0 if isinstance(sock, ssl.SSLSocket) else socket.MSG_WAITALL
        if self._whole:
            self._sock.settimeout(None)
        self.patience_s = max(patience_s, usual_patience_s(options))
        self._limit_s = 0.0
        self._limit(self.patience_s)
        # Correlation id, version, and the names of topics by ids, of each request.
        self._in_flight: list[tuple[int, int, Mapping[bytes, str]]] = []
        self._topic_ids: Mapping[str, str] = {}
        self._names: Mapping[bytes, str] = {}  # by those ids
        self._size = bytearray(4)
        self._frame = bytearray(1 << 16)
        self._frame_limit = max(LARGEST_BATCH, options.fetching.max_bytes + options.fetching.most_of_partition)

    @property
    def idle(self) -> bool:
        """Whether every request has had its response read."""
        return not self._in_flight

    @property
    def throttled_s(self) -> float:
        """How long the broker wants the next request to wait (KIP-219): at most kafkaConsumer.pollTimeoutMs."""
        return self._throttled_s(self._options.fetching.poll_timeout_ms / 1000)

    def send(
        self,
        positions: Mapping[TopicPartition, int],
        epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
        rack: str = "",
        topic_ids: Mapping[str, str] = MappingProxyType({}),
        sizes: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> None:
        """Ask for records from each position on; the broker fills the response in this order. `sizes`: most bytes of
        partitions, where the user gives none.

        Only the leader of a partition sends records, and only if its epoch is the partition's in `epochs`, where that
        has one. With a `rack` followers send records, too, and a leader may name a replica there instead. With
        `topic_ids`, which has to have all topics, followers send records, too; of a topic with another id nobody sends
        records, if the broker can be asked so (Kafka 3.1). Raises TimeoutError when the broker does not take the
        request for too long, or not all of it within kafka.request.timeout.ms.
        """
        if self.throttled_s:  # even a sleep of no time gives the processor away
            time.sleep(self.throttled_s)
        correlation_id = self._next_correlation_id()
        if topic_ids and self._by_ids is not None:
            requests = self._by_ids
            if topic_ids is not self._topic_ids:
                self._topic_ids, self._names = topic_ids, names_by_id(topic_ids)
        else:
            requests = self._of_any_replica if rack else self._of_leaders
        self._send_all(memoryview(requests.encoded(positions, correlation_id, epochs, rack, topic_ids, sizes)))
        self._in_flight.append((correlation_id, requests.version, self._names))

    def receive(self) -> list[FetchedPartition]:
        """The response to the oldest open request; its records are valid until the next. Raises TimeoutError when
        nothing comes for too long, or not all in kafka.request.timeout.ms; OSError when it is broken."""
        began = time.monotonic()
        deadline = self._deadline()
        self._receive_into(memoryview(self._size), deadline)
        waited_s = time.monotonic() - began
        (size,) = struct.unpack(">i", self._size)
        if not 4 <= size <= self._frame_limit:
            raise AnswerError(f"a response gives its length as {size}, and at most {self._frame_limit} are possible")
        if not size <= len(self._frame) <= max(KEPT, 4 * size):  # too small, or left over from one large record
            self._frame = bytearray(size)
        frame = memoryview(self._frame)[:size]
        self._receive_into(frame, deadline)
        usual_s = usual_patience_s(self._options)
        if self.patience_s > max(usual_s, 2 * waited_s):
            self.patience_s = max(usual_s, 2 * waited_s)
        (correlation_id,) = struct.unpack_from(">i", frame)
        expected, version, names = self._in_flight.pop(0)
        if correlation_id != expected:
            raise AnswerError("the response belongs to another request")
        try:
            committed_only = self._options.fetching.committed_only
            throttle_ms, error_code, partitions = fetched(frame[4:], version, committed_only, names)
        except (ValueError, struct.error) as error:
            raise AnswerError(f"not a fetch response: {error}") from error
        self._throttle(throttle_ms)
        if error_code:
            raise AnswerError(f"fetch refused: {kafka_errors.for_code(error_code).__name__}")
        return partitions

    def _deadline(self) -> Deadline:
        """Of a request that is sent, or a response that is read; the socket waits as long as its broker may."""
        if self._limit_s != self.patience_s:
            self._limit(self.patience_s)
        return Deadline(self._options.connection.request_timeout_ms / 1000)

    def _limit(self, seconds: float) -> None:
        """Let the socket wait so long for a byte to come, or to go."""
        self._limit_s = seconds
        if not self._whole:
            self._sock.settimeout(seconds)
            return
        whole, part = divmod(seconds, 1)
        for limit in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self._sock.setsockopt(socket.SOL_SOCKET, limit, struct.pack("ll", int(whole), int(part * 1_000_000)))

    def _send_all(self, request: memoryview) -> None:
        deadline, size = self._deadline(), len(request)
        while request:
            try:
                request = request[self._sock.send(request) :]
            except (BlockingIOError, TimeoutError) as error:
                raise TimeoutError(f"{size} bytes of a request are not taken") from error
            if request and not self._goes_on(deadline):
                raise TimeoutError(f"{size} bytes of a request are not taken within kafka.request.timeout.ms")

    def _receive_into(self, view: memoryview, deadline: Deadline) -> None:
        received, size = 0, len(view)
        while received < size:
            try:
                count = self._sock.recv_into(view[received:], 0, self._whole)
            except (BlockingIOError, TimeoutError) as error:
                if self._limit_s < self.patience_s:
                    raise self._too_slow(received, size) from error
                raise TimeoutError(f"nothing has come for {self.patience_s:.1f} s") from error
            if not count:
                raise ConnectionError("the broker closed the connection")
            received += count
            if received < size and not self._goes_on(deadline):
                raise self._too_slow(received, size)

    def _goes_on(self, deadline: Deadline) -> bool:
        """Whether there is time left; if it is little, the socket waits no longer than that."""
        left_s = deadline.left_s
        if 0 < left_s < self._limit_s:
            self._limit(max(left_s, SHORTEST_S))
        return left_s > 0

    def _too_slow(self, received: int, size: int) -> TimeoutError:
        return TimeoutError(
            f"{received} of {size} bytes have come within kafka.request.timeout.ms "
            f"({self._options.connection.request_timeout_ms}): if the network is slow, raise it, or lower "
            f"kafka.fetch.max.bytes ({self._options.fetching.max_bytes}) and kafka.max.partition.fetch.bytes"
        )


def usual_patience_s(options: ClientOptions) -> float:
    """How long a broker may take to begin a response, or pause, before it is doubted."""
    return min(options.fetching.max_wait_ms / 1000 + OVERDUE_S, options.connection.request_timeout_ms / 1000)


def readable(connections: Collection[FetchConnection], timeout_s: float = 0) -> list[FetchConnection]:
    """Those on which some of a response has come, or that are broken; waits so long for the first one."""
    found = {connection for connection in connections if connection.decrypted}
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ, connection)
        found |= {key.data for key, _ in selector.select(0 if found else timeout_s)}
    return [connection for connection in connections if connection in found]
