"""Sends a task's record batches: each is written once, in order within its partition, however often brokers fail.

There is no thread: all that can be done without waiting is done whenever a batch is handed over, and the rest while
there is no room for another one, and at the end. While the caller does something else, time limits stand still.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import NamedTuple, Self

from spark_kafka_group.errors import LASTING, BrokerError, BrokerTimeoutError
from spark_kafka_group.executor.encode.encoder_contract import EncodedBatch
from spark_kafka_group.executor.writing.sending import routes, unwritten
from spark_kafka_group.executor.writing.sending.outbox import Outbox, Sealed
from spark_kafka_group.executor.writing.sending.routes import LONGEST_PAUSE_S, Asked, Routes
from spark_kafka_group.executor.writing.sending.stamping import ProducerSession, Stamping, Stamps, Transaction
from spark_kafka_group.options import ClientOptions
from spark_kafka_group.options.producing import Producing
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.outage import with_reason
from spark_kafka_group.wire.produce.produce_connection import ProduceConnection, wait
from spark_kafka_group.wire.produce.produce_messages import (
    ZSTD_FROM,
    ProducedPartition,
    ProduceError,
    ProduceSettings,
    overhead,
)
from spark_kafka_group.wire.produce.receiving_brokers import ReceivingBrokers
from spark_kafka_group.wire.reactions import Reaction
from spark_kafka_group.wire.writable_topics import LongWait

ABSENT_AFTER_S = 1.0
"""A caller that comes back later than that was busy with something else: the time beyond does not count."""


class AttendedClock:
    """Seconds in which a caller was here, or away for a moment: answers that came while nobody looked are not late."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left_at = clock()
        self._absent_s = 0.0

    def now(self) -> float:
        """Seconds."""
        return self._clock() - self._absent_s

    def come(self) -> None:
        """The caller is here."""
        self._absent_s += max(0.0, self._clock() - self._left_at - ABSENT_AFTER_S)

    def leave(self) -> None:
        """The caller goes."""
        self._left_at = self._clock()


MOST_RECOGNISED = 5  # a broker knows the last five batches of a producer in a partition again
LOOK_EVERY_S = 0.1  # between two looks at time limits
LOOK_ELSEWHERE_S = 5.0  # after this long without an answer brokers are asked whether another one leads by now
WAIT_S = 0.25  # the longest wait for a broker before time limits are looked at
WAIT_FOR_LOOKUPS_S = 0.02
"""The same while leaders are looked up or connections are made: those have time limits of their own."""


class Written(NamedTuple):
    """What brokers have acknowledged of a partition."""

    records: int
    last_offset: int  # of its last record; -1 where brokers do not say


class Sender:
    """Sends record batches of one task. For one thread.

    `transaction`: to send in; None to send without, as an idempotent producer unless kafka.enable.idempotence is false.
    `brokers`: its connections, for lookups by the task, too.
    `halvings`: how often brokers had record batches of a topic halved, as these were too large; kept for the next task.
    `held_bytes`: of record batches that are not acknowledged.
    `records`, `written_bytes`: acknowledged.
    """

    def __init__(
        self, options: ClientOptions, producing: Producing, encoder: Stamps, transaction: Transaction | None = None
    ) -> None:
        self._producing = producing
        self._encoder = encoder
        self._transactional = transaction is not None
        self._idempotent = self._transactional or (producing.enable_idempotence and producing.acks == "all")
        self._receivers = routes.receivers_for(options)
        self.brokers: ReceivingBrokers[Asked] = self._receivers.brokers
        self._stamping = Stamping(encoder, transaction)
        self._boxes: dict[TopicPartition, Outbox] = {}
        self._routes = Routes(self.brokers, self._boxes, options.connection.metadata_max_age_ms / 1000)
        self._request_timeout_s = options.connection.request_timeout_ms / 1000
        self._settings = ProduceSettings(
            producing.acks,
            options.connection.request_timeout_ms,
            None if transaction is None else transaction.transactional_id,
        )
        in_flight = producing.max_in_flight_requests_per_connection
        self._most_in_flight = min(in_flight, MOST_RECOGNISED) if self._idempotent else in_flight
        self._unanswerable: dict[ProduceConnection[Asked], Asked] = {}  # without acks, not sent to the end
        self._limits_at_s = 0.0
        self._last_answer_s = 0.0
        self._clock = AttendedClock()
        self._now = self._clock.now
        self._problem = ""
        self._long_wait = LongWait()
        self._failure: BaseException | None = None
        self._closed = False
        self.halvings = self._receivers.halvings
        self.held_bytes = 0
        self.records = 0
        self.written_bytes = 0

    # What callers use

    def send(self, tp: TopicPartition, batch: EncodedBatch) -> None:
        """Hand a sealed batch over, which must not be used any more. Waits while kafka.buffer.memory bytes are held,
        and for brokers at the first batch. Raises WriteError when this batch, or one before it, cannot be written, or
        may be lost; BrokerError when brokers do not answer for too long, or refuse connections."""
        with self._call():
            if not self._boxes:
                self._begin(tp)
            size = len(batch.data)
            self._make_room(tp, size)
            box = self._boxes.get(tp)
            if box is None:
                box = self._boxes[tp] = self._routes.new_box(tp, self._stamping.first_sequence(tp))
            box.hand_over(batch, self._now(), self.halvings.get(tp.topic, 0))
            self.held_bytes += size
            self._routes.queue(box)
            self._turn()

    def flush(self) -> dict[TopicPartition, Written]:
        """Wait until all is acknowledged; returns all that has been since the start. Raises WriteError, BrokerError."""
        with self._call():
            while self.held_bytes:
                self._turn()
                if self.held_bytes:
                    self._wait()
        return {tp: Written(box.records, box.last_offset) for tp, box in self._boxes.items() if box.records}

    def close(self) -> None:
        """Give up what is not acknowledged. Connections are kept for the next task. Harmless when repeated."""
        if self._closed:
            return
        self._closed = True
        session = None if self._failure is not None or self.held_bytes else self._stamping.session
        if session is not None:
            session.sequences |= {tp: box.next_sequence for tp, box in self._boxes.items()}
        if self._boxes or self._failure is not None:
            self._receivers.session = session
        routes.keep(self._receivers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @contextlib.contextmanager
    def _call(self) -> Iterator[None]:
        """A call from outside; after one that has failed, all fail."""
        if self._closed:
            raise RuntimeError("the sender is closed")
        if self._failure is not None:
            raise self._failure
        self._clock.come()
        try:
            yield
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._clock.leave()

    # Beginning

    def _begin(self, tp: TopicPartition) -> None:
        """Reach brokers, and be known to them."""
        ends_s = self._now() + self._producing.delivery_timeout_ms / 1000
        while True:
            try:
                self.brokers.reach()
                break
            except LASTING:
                raise
            except BrokerError as error:
                if self._now() >= ends_s:
                    raise BrokerTimeoutError(f"{tp}: {error}") from error
                time.sleep(self._routes.pause_s)
        if self._idempotent and not self._transactional:
            self._stamping.session = self._receivers.session or ProducerSession(
                *self.brokers.new_producer_id(max(0.0, ends_s - self._now()), [tp.topic])
            )
        self._last_answer_s = self._now()

    # One round

    def _turn(self) -> None:
        """Do all that can be done without waiting."""
        now = self._now()
        if self._routes.look_up(now):
            self._leave_silent_brokers(now)
        self._receive(now)
        for node_id in self._routes.nodes():
            connection = self._routes.connection(node_id, now)
            if connection is not None:
                self._send_to(node_id, connection, now)
        if now >= self._limits_at_s:
            self._limits_at_s = now + LOOK_EVERY_S
            self._check_limits(now)

    def _wait(self) -> None:
        """Until a broker has something, or takes something, but not for long."""
        connections = [connection for _, connection in self._routes.connections()]
        if self.brokers.busy:
            wait(connections, WAIT_FOR_LOOKUPS_S, [self.brokers.descriptor()])
            return
        now = self._now()
        next_at = self._routes.next_at_s(now)
        pauses = [connection.throttled_s(self._request_timeout_s) for connection in connections]
        ahead = [*filter(None, pauses), *(() if next_at is None else (max(0.0, next_at - now),))]
        wait(connections, min([WAIT_S, *ahead]))

    def _make_room(self, tp: TopicPartition, size: int) -> None:
        """Wait until a batch of this size fits, or nothing is held."""
        began_s = self._now()
        while self.held_bytes and self.held_bytes + size > self._producing.buffer_memory:
            self._turn()
            if self._now() - max(began_s, self._last_answer_s) >= self._producing.max_block_ms / 1000:
                raise unwritten.buffer_full(tp, self._producing, self._why(None))
            if self.held_bytes and self.held_bytes + size > self._producing.buffer_memory:
                self._wait()

    # Sending

    def _send_to(self, node_id: int, connection: ProduceConnection[Asked], now: float) -> None:
        boxes = self._routes.boxes_for(node_id)
        while (
            boxes
            and connection.in_flight < self._most_in_flight
            and not connection.unsent
            and not connection.expiring  # once it is idle, another one takes its place
            and not connection.throttled_s(self._request_timeout_s)
        ):
            chosen = self._chosen(boxes, node_id, now)
            if not chosen:
                return
            if self._producing.compression_type == "zstd" and connection.version < ZSTD_FROM:
                raise unwritten.codec_unknown(chosen[0].tp, self.brokers.name(node_id))
            self._stamping.before(chosen)
            asked: Asked = []
            for box in chosen:
                sealed = box.send(node_id)
                self._stamping.stamp(box, sealed)
                asked.append((box, sealed))
                del boxes[box.tp]
                if box.waiting:
                    boxes[box.tp] = box  # behind the others
            batches = {box.tp: sealed.batch.data for box, sealed in asked}
            try:
                connection.send(batches, self._settings, asked, now)
            except OSError as error:
                self._lose(node_id, error, now, asked)
                return
            if self._producing.acks == "0":
                self._unanswerable.setdefault(connection, []).extend(asked)
                self._count_sent(connection)

    def _chosen(self, boxes: Mapping[TopicPartition, Outbox], node_id: int, now: float) -> list[Outbox]:
        """Those whose next batches go into the next request."""
        chosen: list[Outbox] = []
        size = 0
        for box in boxes.values():
            sealed = box.ready(node_id, now)
            if sealed is None:
                continue
            size += sealed.size + overhead(box.tp)
            if chosen and size > self._producing.max_request_size:
                break
            chosen.append(box)
        return chosen

    def _count_sent(self, connection: ProduceConnection[Asked]) -> None:
        """Without acknowledgements a batch counts as written once it is sent."""
        if not connection.unsent:
            for box, sealed in self._unanswerable.pop(connection, ()):
                self._acknowledge(box, sealed, -1)

    # Answers

    def _receive(self, now: float) -> None:
        for node_id, connection in self._routes.connections():
            try:
                connection.write()
                answers = connection.read()
            except OSError as error:
                self._lose(node_id, error, now)
                continue
            self._count_sent(connection)
            for answer in answers:
                by_partition = {partition.tp: partition for partition in answer.partitions}
                for box, sealed in answer.asked:
                    self._answered(box, sealed, by_partition[box.tp], now)

    def _answered(self, box: Outbox, sealed: Sealed, answer: ProducedPartition, now: float) -> None:
        error = answer.error
        if error is None or error.reaction is Reaction.WRITTEN_BEFORE:
            self._acknowledge(box, sealed, answer.base_offset)
            return
        match error.reaction:
            case Reaction.TOO_LARGE:
                self._split(box, sealed)
            case Reaction.OUT_OF_SEQUENCE:
                alone = box.is_alone(sealed)
                self._return(box, [sealed], error.name, now)
                if alone:
                    self._pass_over_written(box, error)
            case Reaction.PRODUCER_FORGOTTEN:
                self._forgotten(box, sealed, answer, error, now)
            case Reaction.OUTDATED_PRODUCER:
                raise unwritten.outdated(box.tp, error.name, error.advice)
            case Reaction.RETRY | Reaction.FIND_LEADER | Reaction.REPLICAS_AWAY | Reaction.BROKERS_AWAY:
                said = error.advice and f"{error.name}: {error.advice}"
                self._return(box, [sealed], said or error.name, now)
                number = self._routes.ask_for_leaders()
                if error.reaction is Reaction.FIND_LEADER:
                    box.await_lookup(number)
            case _:
                raise unwritten.refused(box.tp, error.name, error.advice, answer.message)

    def _acknowledge(self, box: Outbox, sealed: Sealed, base_offset: int) -> None:
        last_offset = box.last_offset
        if not box.acknowledged(sealed, base_offset):
            raise unwritten.cut_off(box.tp, base_offset, last_offset)
        self._count(sealed)

    def _count(self, sealed: Sealed) -> None:
        self.held_bytes -= sealed.size
        self.records += sealed.batch.records
        self.written_bytes += sealed.size
        self._last_answer_s = self._now()
        self._long_wait.over()

    def _split(self, box: Outbox, sealed: Sealed) -> None:
        if sealed.batch.records < 2:
            raise unwritten.too_large(box.tp, sealed.size)
        topic = box.tp.topic
        self.halvings[topic] = max(self.halvings.get(topic, 0), sealed.halvings + 1)
        halves = self._encoder.split(sealed.batch)
        self.held_bytes += sum(len(half.data) for half in halves) - sealed.size
        box.split(sealed, halves)
        self._routes.queue(box)

    def _pass_over_written(self, box: Outbox, error: ProduceError) -> None:
        """Go on with the last batch that the log has, where it has batches that had no answer.

        1. Batches are written, and their leader is killed before it answers. 2. It comes back, and knows no more than
        the last one. 3. The first one is sent again, and is out of order. The last one it knows, and acknowledges it,
        and so all before it.
        """
        producer = self._stamping.producer
        try:
            last = None if producer is None else self.brokers.last_sequence(box.tp, producer.producer_id)
        except BrokerError as unanswered:
            self._problem = str(unanswered)
            return  # it is sent again, with the same answer
        before = [] if last is None else box.before(last)
        if not before:
            raise unwritten.out_of_sequence(box.tp, error.name)
        for sealed in before:
            box.pass_over(sealed)
            self._count(sealed)

    def _forgotten(
        self, box: Outbox, sealed: Sealed, answer: ProducedPartition, error: ProduceError, now: float
    ) -> None:
        """Begin a producer anew that brokers before Kafka 2.5 forgot; its record is lost if the log should have it."""
        if box.is_first(sealed) and answer.log_start_offset >= 0:
            if box.records and answer.log_start_offset <= box.last_offset:
                raise unwritten.out_of_sequence(box.tp, error.name)
            box.begin_anew()
        self._return(box, [sealed], error.name, now)

    def _return(self, box: Outbox, batches: list[Sealed], problem: str, now: float) -> None:
        box.returned(batches, problem, now, self._routes.pause_s, LONGEST_PAUSE_S)
        self._routes.queue(box)

    def _lose(self, node_id: int, error: Exception, now: float, unsent: Asked | None = None) -> None:
        """Give a connection up, and send again what had no answer."""
        problem = f"{self.brokers.name(node_id)}: {error}"
        for connected, connection in self._routes.connections():
            if connected == node_id:
                asked = [*connection.asked, self._unanswerable.pop(connection, [])]
                if unsent is not None and unsent not in asked:
                    asked.append(unsent)
                by_box: dict[TopicPartition, list[Sealed]] = {}
                for box, sealed in (pair for request in asked for pair in request):
                    by_box.setdefault(box.tp, []).append(sealed)
                for tp, batches in by_box.items():
                    self._return(self._boxes[tp], batches, problem, now)
                if by_box:
                    self._problem = problem
        self.brokers.give_up(node_id, error)
        self._routes.ask_for_leaders()

    # Limits

    def _leave_silent_brokers(self, now: float) -> None:
        """Give up connections to brokers that are silent, and lead no more. Brokers know what is sent again."""
        for node_id, connection in self._routes.connections():
            silent = connection.oldest_s is not None and now - connection.oldest_s >= LOOK_ELSEWHERE_S
            moved = any(box.node not in (None, node_id) for asked in connection.asked for box, _ in asked)
            if silent and moved and self._idempotent:
                self._lose(node_id, TimeoutError("no answer, and another broker leads by now"), now)

    def _check_limits(self, now: float) -> None:
        for node_id, connection in self._routes.connections():
            silent_s = 0.0 if connection.oldest_s is None else now - connection.oldest_s
            if silent_s >= self._request_timeout_s:
                self._lose(node_id, TimeoutError(f"no answer within kafka.request.timeout.ms ({silent_s:.1f} s)"), now)
            elif silent_s >= LOOK_ELSEWHERE_S:
                self._routes.ask_for_leaders()
        limit_s = self._producing.delivery_timeout_ms / 1000
        for box in self._boxes.values():
            oldest = None if box.empty else box.oldest
            if oldest is not None and now - oldest.since_s >= limit_s:
                raise unwritten.undelivered(box.tp, self._producing, self._why(box))
            if oldest is not None:
                self._long_wait.lasts(str(box.tp), now - oldest.since_s, partial(self._why, box))

    def _why(self, box: Outbox | None) -> str:
        problem = (box is not None and box.problem) or self._problem or self._routes.problem
        return with_reason(problem, self.brokers.last_failure)
