"""Where a task's record batches go: who leads their partitions, and the connections that this worker keeps."""

from __future__ import annotations

import heapq
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_kafka_group.errors import LASTING, BrokerError
from spark_kafka_group.executor.writing.sending import unwritten
from spark_kafka_group.executor.writing.sending.outbox import Outbox, Sealed
from spark_kafka_group.executor.writing.sending.stamping import ProducerSession
from spark_kafka_group.options import ClientOptions
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.leaders import KeptConnections
from spark_kafka_group.wire.produce.produce_connection import ProduceConnection
from spark_kafka_group.wire.produce.receiving_brokers import ReceivingBrokers
from spark_kafka_group.wire.reactions import Facts, Request, advice

LONGEST_PAUSE_S = 1.0  # between two attempts, as Java's retry.backoff.max.ms
CONNECTED_SOON_S = 1.0  # after this long without a connection brokers are asked whether another one leads by now
GONE_AFTER_S = 5.0
"""A partition does not exist if all answers of brokers lack it for this long. Not all know a new one at once."""
ASKED_WITHIN_S = 3.0
"""Between two answers of brokers. After a longer silence they may have restarted, and not know all topics yet."""

Asked = list[tuple[Outbox, Sealed]]  # the batches of a request


class Routes:
    """Of one task. Nothing here waits. `boxes`: the task's, to which it adds. `problem`: why the last attempt to look
    up or to connect failed."""

    def __init__(
        self, brokers: ReceivingBrokers[Asked], boxes: Mapping[TopicPartition, Outbox], metadata_max_age_s: float
    ) -> None:
        self._brokers = brokers
        self._boxes = boxes
        self._metadata_max_age_s = metadata_max_age_s
        self.pause_s = max(0.001, brokers.retry_backoff_s)
        self.problem = "no answer"
        self._to_send: dict[int | None, dict[TopicPartition, Outbox]] = {}  # those with batches, by leader
        self._topic_ids: dict[str, str] = {}
        self._connecting_since_s: dict[int, float] = {}
        self._not_before_s: dict[int, float] = {}  # of nodes to which a connection has failed
        self._wake_at_s: list[float] = []  # a heap
        self._looked_up_s = brokers.looked_up_s
        self._look_up_at_s = 0.0
        self._looks = 0
        self._wanted = 0  # the number of the lookup that is to answer
        self._fresh = False  # whether brokers have been asked for leaders since the task began

    def new_box(self, tp: TopicPartition, sequence: int) -> Outbox:
        """Of a partition whose leader may be known from the task before."""
        box = Outbox(tp, sequence)
        box.node = self._brokers.leader(tp)
        self._note_topic_id(tp.topic)
        return box

    def queue(self, box: Outbox) -> None:
        """Note that a box has a batch to send, perhaps later."""
        self._to_send.setdefault(box.node, {})[box.tp] = box
        if box.not_before_s:
            heapq.heappush(self._wake_at_s, box.not_before_s)

    def nodes(self) -> list[int]:
        """Leaders for which there are batches."""
        return [node_id for node_id, boxes in self._to_send.items() if boxes and node_id is not None]

    def boxes_for(self, node_id: int) -> dict[TopicPartition, Outbox]:
        """Those with batches for a leader; the caller takes out what it sends."""
        return self._to_send[node_id]

    def next_at_s(self, now: float) -> float | None:
        """When something is to be done although no broker has said anything."""
        while self._wake_at_s and self._wake_at_s[0] <= now:
            heapq.heappop(self._wake_at_s)
        times = [*self._wake_at_s[:1], *([self._look_up_at_s] if self._wants_look_up else ())]
        return min(times, default=None)

    # Leaders

    def ask_for_leaders(self) -> int:
        """Have leaders looked up: they may have moved. Returns the number of the lookup. One that has begun does not
        count: brokers may have answered it before."""
        self._wanted = self._brokers.begun + 1
        return self._wanted

    @property
    def _wants_look_up(self) -> bool:
        return bool(self._to_send.get(None)) or self._brokers.answered < self._wanted

    def look_up(self, now: float) -> bool:
        """Let lookups and attempts to connect go on, and begin a lookup where one is due; whether one has come to an
        end. Raises WriteError when a partition does not exist, or is another one than before; BrokerError when brokers
        refuse connections."""
        brokers = self._brokers
        if brokers.busy:
            try:
                brokers.work()
            except LASTING:
                raise
            except BrokerError as error:
                self.problem = str(error)
        looked_up = brokers.looked_up_s > self._looked_up_s
        if looked_up:
            since_s, self._looked_up_s = brokers.looked_up_s - self._looked_up_s, brokers.looked_up_s
            self._looks = 0
            self._take_leaders(now, lately=since_s <= ASKED_WITHIN_S)
        aged = not self._fresh or time.monotonic() - self._looked_up_s >= self._metadata_max_age_s
        if (self._wants_look_up or aged) and now >= self._look_up_at_s:
            self._look_up_at_s = now + min(LONGEST_PAUSE_S, self.pause_s * 2 ** min(self._looks, 10))
            self._looks += 1
            self._fresh = True
            brokers.begin_look_up({tp.topic for tp in self._boxes})
        return looked_up

    def _take_leaders(self, now: float, lately: bool) -> None:
        """Sort batches by leaders, and see what has become of their partitions. `lately`: whether brokers have answered
        shortly before, too."""
        for topic in {tp.topic for tp in self._boxes}:
            self._note_topic_id(topic)
        self._to_send = {}
        for tp, box in self._boxes.items():
            box.node = self._brokers.leader(tp)
            box.looked_up(self._brokers.answered)
            if box.waiting:
                self._to_send.setdefault(box.node, {})[tp] = box
        busy = {tp: box for tp, box in self._boxes.items() if not box.empty}
        missing = self._brokers.missing(busy)
        for tp, box in busy.items():
            if self._brokers.denied(tp.topic):
                raise unwritten.may_not_write(
                    tp, advice("TOPIC_AUTHORIZATION_FAILED", Request.PRODUCE, Facts(), [tp.topic])
                )
            if tp not in missing:
                box.missing_since_s = None
            elif box.missing_since_s is None or not lately:
                box.missing_since_s = now
            elif now - box.missing_since_s >= GONE_AFTER_S:
                raise unwritten.no_such_partition(tp, self._brokers.partition_count(tp.topic))

    def _note_topic_id(self, topic: str) -> None:
        topic_id = self._brokers.topic_id(topic)
        if topic_id is None:
            return
        if self._topic_ids.setdefault(topic, topic_id) != topic_id:
            for tp, box in self._boxes.items():
                if tp.topic == topic and box.records:
                    raise unwritten.made_again(tp)
            self._topic_ids[topic] = topic_id

    # Connections

    def connections(self) -> Collection[tuple[int, ProduceConnection[Asked]]]:
        """Those that there are, with their nodes."""
        return self._brokers.connections()

    def connection(self, node_id: int, now: float) -> ProduceConnection[Asked] | None:
        """The connection to a node, if there is one by now. Raises BrokerError when brokers refuse connections."""
        if now < self._not_before_s.get(node_id, 0.0):
            return None
        try:
            connection = self._brokers.connected(node_id)
        except LASTING:
            raise
        except (OSError, BrokerError) as error:
            self.problem = str(error)
            self._not_before_s[node_id] = now + self.pause_s
            heapq.heappush(self._wake_at_s, now + self.pause_s)
            self._connecting_since_s.pop(node_id, None)
            self.ask_for_leaders()
            return None
        if connection is not None:
            self._connecting_since_s.pop(node_id, None)
        elif now - self._connecting_since_s.setdefault(node_id, now) >= CONNECTED_SOON_S:
            self.ask_for_leaders()
        return connection


@dataclass
class Receivers:
    """Of one task at a time."""

    brokers: ReceivingBrokers[Any]
    session: ProducerSession | None = None  # the producer of the last task, if that has ended well
    # How often brokers had record batches of a topic halved, as these were too large
    halvings: dict[str, int] = field(default_factory=dict)


_kept: KeptConnections[ClientOptions, Receivers] = KeptConnections(lambda receivers: receivers.brokers.close())
close_all = _kept.close_all


def receivers_for(options: ClientOptions) -> Receivers:
    """Those of the last task with these options, unless another one has them; else new ones."""
    return _kept.pop(options) or Receivers(ReceivingBrokers(options))


def keep(receivers: Receivers) -> None:
    """Let the next task have them."""
    receivers.brokers.drop_busy()
    _kept.keep(receivers.brokers.options, receivers)
