"""Whether records have come to logs that were read to their ends, without asking for the ends again and again.

Spark asks for new data every 10 ms. A fetch from the end of a log waits in the broker until a record comes, or for
kafka.fetch.max.wait.ms: Kafka's long poll. While its answer is out, nothing has come.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from spark_kafka_group.errors import BrokerError, GroupKafkaError
from spark_kafka_group.options import ClientOptions
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire import Brokers, FetchConnection, readable

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 1.0
"""How often ends are looked up in any case: at the latest then, changes are known that no fetch shows."""

AGAIN_AFTER_ERROR_S = 1.0  # how long brokers that cannot be watched are asked for ends at each trigger instead

POLLING_S = 0.03
"""If Spark comes back within this time, it only asks for new data. Otherwise another source of the query has records,
or the trigger interval is long, and waiting would hold them up."""

PATIENCE_S = 0.05
"""How long a trigger waits for the first record while Spark only asks for new data: it then asks less often."""

LEAST_PATIENCE_S = 0.005
"""How long a trigger waits in any case, so that it does not miss a record that was just acknowledged. Asking for ends
takes as long."""

OVERDUE_S = 1.0  # how late an answer may be; after that it is not waited for

SHORTEST_POLL_MS = 100  # how long a poll waits in the broker at least, also where fetches of tasks do not wait at all


class LongPoll:
    """Long polls, one to each broker that leads a watched partition. For one thread."""

    def __init__(self, options: ClientOptions, clock: Callable[[], float] = time.monotonic) -> None:
        # The least that answers: of the first partition with a record, one record batch.
        max_wait_ms = max(options.fetching.max_wait_ms, SHORTEST_POLL_MS)
        self._fetching = replace(
            options.fetching, max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1, partition_max_bytes=1
        )
        self._clock = clock
        self._brokers = Brokers(replace(options, fetching=self._fetching), "driver")
        self._asked: dict[
            int, tuple[float, dict[TopicPartition, int]]
        ] = {}  # by node: when its answer is overdue, and positions asked for
        self._refresh = False  # whether leaders that are known may have moved
        self._until = float("-inf")
        self._not_before = float("-inf")
        self._answered_at = float("-inf")

    def start(self, ends: Mapping[TopicPartition, int], looked_at: float) -> None:
        """Watch these logs from here on; polls that are out for the same ends go on. Without logs nothing will come.
        `looked_at`: when the ends were looked up, by time.monotonic()."""
        now = self._clock()
        self._until = float("-inf")
        if now < self._not_before:
            return
        try:
            self._ask(ends)
        except (OSError, GroupKafkaError) as error:
            self._give_up(error)
        else:
            self._until = looked_at + LOOK_AGAIN_S
            self._answered_at = now

    def nothing_new(self, at_most_s: float = PATIENCE_S) -> bool:
        """Whether nothing has come since ends were looked up, not long ago; may wait a little for something."""
        now = self._clock()
        if now >= self._until:
            return False
        try:
            news = self._hears(min(at_most_s, PATIENCE_S if now - self._answered_at < POLLING_S else LEAST_PATIENCE_S))
        except (OSError, GroupKafkaError) as error:
            self._give_up(error)
            return False
        if news:
            self._until = float("-inf")
        self._answered_at = self._clock()
        return not news

    def close(self) -> None:
        self._end_polls()
        self._brokers.close()

    def _ask(self, ends: Mapping[TopicPartition, int]) -> None:
        """Send a fetch to every leader that has none to answer for just these ends."""
        wanted: dict[int, dict[TopicPartition, int]] = {}
        leaders = self._brokers.leaders(ends.keys(), self._refresh)
        self._refresh = False
        for tp, node_id in leaders.items():
            wanted.setdefault(node_id, {})[tp] = ends[tp]
        if len(leaders) < len(ends):
            raise BrokerError("a partition has no leader")
        for node_id, (_, positions) in list(self._asked.items()):
            if positions != wanted.get(node_id):
                self._forget(node_id)
        for node_id in wanted.keys() - self._asked.keys():
            self._send(node_id, wanted[node_id])

    def _send(self, node_id: int, positions: dict[TopicPartition, int]) -> None:
        connection = self._brokers.connection(node_id)
        if connection.throttled_s > 0:
            raise BrokerError(f"node {node_id} has throttled this client")
        connection.send(positions)
        overdue = self._clock() + self._fetching.max_wait_ms / 1000 + OVERDUE_S
        self._asked[node_id] = overdue, positions

    def _hears(self, patience_s: float) -> bool:
        """Take answers that come; a poll that ended without anything is sent again, and may be answered at once."""
        deadline = self._clock() + patience_s
        while answered := self._answered(max(0.0, deadline - self._clock())):
            if any(self._is_news(node_id, connection) for node_id, connection in answered):
                return True
            if self._clock() >= deadline:  # brokers may answer as fast as they are asked
                break
        overdue = [node_id for node_id, (when, _) in self._asked.items() if self._clock() >= when]
        for node_id in overdue:
            self._brokers.give_up(node_id, TimeoutError())  # others are asked who leads
        if overdue:
            raise TimeoutError(f"node {overdue[0]} does not answer")
        return False

    def _answered(self, timeout_s: float) -> list[tuple[int, FetchConnection]]:
        """Nodes whose answers have come, and their connections: a poll that is sent again may have made another one."""
        nodes = {self._brokers.connection(node_id): node_id for node_id in self._asked}
        return [(nodes[connection], connection) for connection in readable(nodes, timeout_s)]

    def _is_news(self, node_id: int, connection: FetchConnection) -> bool:
        """Take a node's answer; without anything in it, its poll is sent again."""
        _, positions = self._asked.pop(node_id)
        for partition in connection.receive():
            if partition.error is not None:
                raise BrokerError(f"{partition.tp}: {partition.error}")
            stable = partition.last_stable_offset
            end = partition.high_watermark if stable is None else stable
            if partition.records or end != positions.get(partition.tp):
                return True
        self._send(node_id, positions)
        return False

    def _forget(self, node_id: int) -> None:
        """Drop the answer to a poll that is not of use any more.

        1. A poll is out. 2. A partition is paused, or moves, and another poll is sent. 3. The first answer
        comes, and would be taken for that of the second. So it is received first, or its connection is dropped.
        """
        del self._asked[node_id]
        connection = self._brokers.connection(node_id)
        if readable([connection]):
            connection.receive()
        else:
            self._brokers.drop(node_id)

    def _give_up(self, error: Exception) -> None:
        """Poll no more for a while. The brokers stay known: those of kafka.bootstrap.servers may all be away."""
        log.info("waiting for new records is not possible for now: %s", error)
        self._not_before = self._clock() + AGAIN_AFTER_ERROR_S
        self._refresh = True
        self._end_polls()
        self._brokers.log_in_again_after(error)

    def _end_polls(self) -> None:
        self._until = float("-inf")
        self._asked.clear()
        self._brokers.drop_all()
