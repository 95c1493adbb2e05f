"""Sends a task's record batches: each is written once, in order within its partition, however often brokers fail.

There is no thread: all that can be done without waiting is done whenever a batch is handed over, and the rest while
there is no room for another one, and at the end. While the caller does something else, time limits stand still.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from spark_kafka_group.errors import LASTING, BrokerError, BrokerTimeoutError
from spark_kafka_group.executor.encode.encoded_batch import EncodedBatch
from spark_kafka_group.executor.sending import receivers, unwritten
from spark_kafka_group.executor.sending.attended_clock import AttendedClock
from spark_kafka_group.executor.sending.outbox import Outbox, Sealed
from spark_kafka_group.executor.sending.producer_session import ProducerSession
from spark_kafka_group.offsets import TopicPartition
from spark_kafka_group.options import ClientOptions
from spark_kafka_group.options.producing import Producing
from spark_kafka_group.wire.produce.produce_connection import ProduceConnection, wait
from spark_kafka_group.wire.produce.produce_request import ZSTD_FROM, ProduceSettings, overhead
from spark_kafka_group.wire.produce.produce_response import ProducedPartition, ProduceError
from spark_kafka_group.wire.produce.receiving_brokers import ReceivingBrokers
from spark_kafka_group.wire.reactions import Facts, Reaction, Request, advice
from spark_kafka_group.wire.task_outage import with_reason

MOST_RECOGNISED = 5
"""A broker knows the last five batches of a producer in a partition again."""
LONGEST_PAUSE_S = 1.0
"""Between two attempts, as Java's retry.backoff.max.ms."""
LOOK_EVERY_S = 0.1
"""Between two looks at time limits."""
LOOK_ELSEWHERE_S = 5.0
"""After this long without an answer brokers are asked whether another one leads by now."""
CONNECTED_SOON_S = 1.0
"""After this long without a connection, too."""
GONE_AFTER_S = 5.0
"""A partition does not exist if all answers of brokers lack it for this long. Not all know a new one at once."""
ASKED_WITHIN_S = 3.0
"""Between two answers of brokers. After a longer silence they may have restarted, and not know all topics yet."""
WAIT_S = 0.25
"""The longest wait for a broker before time limits are looked at."""
WAIT_FOR_LOOKUPS_S = 0.02
"""The same while leaders are looked up or connections are made: those have time limits of their own."""
UNKNOWN_SEQUENCE = -1
NO_PRODUCER = -1, -1

Asked = list[tuple[Outbox, Sealed]]
"""The batches of a request."""


class Stamps(Protocol):
    """The encoder's part in sending."""

    def stamp(
        self, data: bytearray, producer_id: int, producer_epoch: int, base_sequence: int, transactional: bool
    ) -> None:
        """Write who sends a record batch, and its CRC."""

    def split(self, batch: EncodedBatch) -> list[EncodedBatch]:
        """Two halves of a batch; one of one record alone."""


class Producer(Protocol):
    """Who sends, as brokers know it."""

    @property
    def producer_id(self) -> int:
        """Of all its attempts."""

    @property
    def epoch(self) -> int:
        """The later one fences the earlier ones."""


@dataclass(frozen=True)
class Transaction:
    """A transaction that is open.

    Attributes
    ----------
    before_first
        Called with partitions before the first batch of each is sent.
    """

    transactional_id: str
    producer: Producer
    before_first: Callable[[set[TopicPartition]], None]


class Written(NamedTuple):
    """What brokers have acknowledged of a partition."""

    records: int
    last_offset: int
    """Of its last record; -1 where brokers do not say."""


class Sender:
    """Sends record batches of one task. For one thread.

    Parameters
    ----------
    transaction
        To send in; None to send without, as an idempotent producer unless kafka.enable.idempotence is false.
    """

    def __init__(
        self, options: ClientOptions, producing: Producing, encoder: Stamps, transaction: Transaction | None = None
    ) -> None:
        self._producing = producing
        self._encoder = encoder
        self._transaction = transaction
        self._receivers = receivers.receivers_for(options)
        self._brokers: ReceivingBrokers[Asked] = self._receivers.brokers
        self._idempotent = transaction is not None or (producing.enable_idempotence and producing.acks == "all")
        self._session: ProducerSession | None = None
        self._request_timeout_s = options.connection.request_timeout_ms / 1000
        self._metadata_max_age_s = options.connection.metadata_max_age_ms / 1000
        self._backoff_s = max(0.001, options.connection.retry_backoff_ms / 1000)
        self._settings = ProduceSettings(
            producing.acks,
            options.connection.request_timeout_ms,
            None if transaction is None else transaction.transactional_id,
        )
        in_flight = producing.max_in_flight_requests_per_connection
        self._most_in_flight = min(in_flight, MOST_RECOGNISED) if self._idempotent else in_flight
        self._boxes: dict[TopicPartition, Outbox] = {}
        self._to_send: dict[int | None, dict[TopicPartition, Outbox]] = {}  # those with batches, by leader
        self._added: set[TopicPartition] = set()  # to the transaction
        self._topic_ids: dict[str, str] = {}
        self._unanswerable: dict[ProduceConnection[Asked], Asked] = {}  # without acks, not sent to the end
        self._connecting_since_s: dict[int, float] = {}
        self._not_before_s: dict[int, float] = {}  # of nodes to which a connection has failed
        self._look_up_at_s = 0.0
        self._looks = 0
        self._looked_up_s = self._brokers.looked_up_s
        self._fresh = False  # whether brokers have been asked for leaders since the task began
        self._limits_at_s = 0.0
        self._last_answer_s = 0.0
        self._clock = AttendedClock()
        self._now = self._clock.now
        self._wake_at_s: list[float] = []  # a heap
        self._problem = "no answer"
        self._failure: BaseException | None = None
        self._closed = False
        self.held_bytes = 0
        self.records = 0
        self.sent_bytes = 0

    # What callers use

    @property
    def brokers(self) -> ReceivingBrokers[Asked]:
        """Those that records are sent to."""
        return self._brokers

    def send(self, tp: TopicPartition, batch: EncodedBatch) -> None:
        """Hand a sealed batch over, which must not be used any more.

        Waits while kafka.buffer.memory bytes are held, and for brokers at the first batch.

        Raises
        ------
        WriteError
            When this batch, or one before it, cannot be written, or may be lost.
        BrokerError
            When brokers do not answer for too long, or refuse connections.
        """
        with self._call():
            self._begin(tp)
            size = len(batch.data)
            if self.held_bytes and self.held_bytes + size > self._producing.buffer_memory:
                self._make_room(tp, size)
            box = self._boxes.get(tp) or self._new_box(tp)
            box.hand_over(batch, self._now())
            self.held_bytes += size
            self._to_send.setdefault(box.node, {})[tp] = box
            self._turn()

    def flush(self) -> dict[TopicPartition, Written]:
        """Wait until everything is acknowledged; returns all that has been since the beginning.

        Raises
        ------
        WriteError
        BrokerError
        """
        with self._call():
            while self._turn() or self.held_bytes:
                if self.held_bytes:
                    self._wait()
        return {tp: Written(box.records, box.last_offset) for tp, box in self._boxes.items() if box.records}

    def close(self) -> None:
        """Give up what is not acknowledged. Connections are kept for the next task. Harmless when repeated."""
        if self._closed:
            return
        self._closed = True
        clean = self._failure is None and not self.held_bytes and self._session is not None
        if clean and self._session is not None:
            self._session.sequences |= {tp: box.next_sequence for tp, box in self._boxes.items()}
        if self._boxes:
            self._receivers.session = self._session if clean else None
        receivers.keep(self._receivers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # Beginning

    def _begin(self, tp: TopicPartition) -> None:
        """Reach brokers, and be known to them."""
        if self._boxes:
            return
        began_s = self._now()
        while True:
            try:
                self._brokers.reach()
                break
            except LASTING:
                raise
            except BrokerError as error:
                if self._now() - began_s >= self._producing.delivery_timeout_ms / 1000:
                    raise BrokerTimeoutError(f"{tp}: {error}") from error
                time.sleep(self._backoff_s)
        if self._idempotent and self._transaction is None:
            session = self._receivers.session
            if session is None:
                left_s = self._producing.delivery_timeout_ms / 1000 - (self._now() - began_s)
                session = ProducerSession(*self._brokers.new_producer_id(max(left_s, 0.0), [tp.topic]))
            self._session = session
        self._last_answer_s = self._now()

    def _new_box(self, tp: TopicPartition) -> Outbox:
        box = Outbox(tp, 0 if self._session is None else self._session.sequences.get(tp, 0))
        box.node = self._brokers.leader(tp)
        self._boxes[tp] = box
        return box

    # One round

    def _turn(self) -> bool:
        """Do all that can be done without waiting; whether anything has come."""
        now = self._now()
        self._look_up(now)
        came = self._receive(now)
        self._send_all(now)
        if now >= self._limits_at_s:
            self._limits_at_s = now + LOOK_EVERY_S
            self._check_limits(now)
        return came

    def _wait(self) -> None:
        """Until a broker has something, or takes something, but not for long."""
        connections = [connection for _, connection in self._brokers.connections()]
        busy = self._brokers.busy
        pause_s = WAIT_FOR_LOOKUPS_S if busy else self._pause_s()
        wait(connections, pause_s, [self._brokers.descriptor()] if busy else ())

    def _pause_s(self) -> float:
        """How long nothing is to be done, unless a broker has something."""
        now = self._now()
        while self._wake_at_s and self._wake_at_s[0] <= now:
            heapq.heappop(self._wake_at_s)
        times = [*self._wake_at_s[:1], *([self._look_up_at_s] if self._wants_look_up() else ())]
        throttled = [connection.throttled_s(self._request_timeout_s) for _, connection in self._brokers.connections()]
        ahead = [*(max(0.0, at - now) for at in times), *(seconds for seconds in throttled if seconds)]
        return float(min([WAIT_S, *ahead]))

    def _make_room(self, tp: TopicPartition, size: int) -> None:
        began_s = self._now()
        while self.held_bytes and self.held_bytes + size > self._producing.buffer_memory:
            self._turn()
            since_s = max(began_s, self._last_answer_s)
            if not self.held_bytes or self.held_bytes + size <= self._producing.buffer_memory:
                return
            if self._now() - since_s >= self._producing.max_block_ms / 1000:
                raise unwritten.buffer_full(tp, self._producing, self._why(None))
            self._wait()

    # Leaders

    def _wants_look_up(self) -> bool:
        return bool(self._to_send.get(None)) or self._looks > 0

    def _look_up(self, now: float) -> None:
        """Let lookups and attempts to connect go on, and begin a lookup where one is due."""
        brokers = self._brokers
        if brokers.busy:
            try:
                brokers.work()
            except LASTING:
                raise
            except BrokerError as error:
                self._problem = str(error)
        if brokers.looked_up_s > self._looked_up_s:
            since_s, self._looked_up_s = brokers.looked_up_s - self._looked_up_s, brokers.looked_up_s
            self._looks = 0
            self._take_leaders(now, lately=since_s <= ASKED_WITHIN_S)
        aged = not self._fresh or time.monotonic() - self._looked_up_s >= self._metadata_max_age_s
        if (self._wants_look_up() or aged) and now >= self._look_up_at_s:
            self._look_up_at_s = now + min(LONGEST_PAUSE_S, self._backoff_s * 2 ** min(self._looks, 10))
            self._looks += 1
            self._fresh = True
            brokers.begin_look_up({tp.topic for tp in self._boxes})

    def _ask_for_leaders(self) -> None:
        """Leaders may have moved."""
        self._looks = max(self._looks, 1)

    def _take_leaders(self, now: float, lately: bool) -> None:
        """Sort batches by leaders, and see what has become of their partitions.

        Parameters
        ----------
        lately
            Whether brokers have answered shortly before, too.

        Raises
        ------
        WriteError
        """
        for topic in {tp.topic for tp in self._boxes}:
            self._note_topic_id(topic)
        self._to_send = {}
        for tp, box in self._boxes.items():
            box.node = self._brokers.leader(tp)
            if box.waiting:
                self._to_send.setdefault(box.node, {})[tp] = box
            if not box.empty:
                self._see_whether_it_exists(box, now, lately)
        for node_id, connection in self._brokers.connections():
            silent = connection.oldest_s is not None and now - connection.oldest_s >= LOOK_ELSEWHERE_S
            moved = any(box.node not in (None, node_id) for asked in connection.asked for box, _ in asked)
            if silent and moved and self._idempotent:
                self._lose(node_id, TimeoutError("no answer, and another broker leads by now"), now)

    def _note_topic_id(self, topic: str) -> None:
        topic_id = self._brokers.topic_id(topic)
        if topic_id is None:
            return
        if self._topic_ids.setdefault(topic, topic_id) != topic_id:
            for tp, box in self._boxes.items():
                if tp.topic == topic and box.records:
                    raise unwritten.made_again(tp)
            self._topic_ids[topic] = topic_id

    def _see_whether_it_exists(self, box: Outbox, now: float, lately: bool) -> None:
        if self._brokers.denied(box.tp.topic):
            raise unwritten.may_not_write(
                box.tp, advice("TOPIC_AUTHORIZATION_FAILED", Request.PRODUCE, Facts(), [box.tp.topic])
            )
        if not self._brokers.missing([box.tp]):
            box.missing_since_s = None
            return
        if box.missing_since_s is None or not lately:
            box.missing_since_s = now
        if now - box.missing_since_s >= GONE_AFTER_S:
            raise unwritten.no_such_partition(box.tp, self._brokers.partition_count(box.tp.topic))

    # Sending

    def _send_all(self, now: float) -> None:
        for node_id in list(self._to_send):
            if node_id is not None and self._to_send[node_id]:
                connection = self._connection(node_id, now)
                if connection is not None:
                    self._send_to(node_id, connection, now)

    def _connection(self, node_id: int, now: float) -> ProduceConnection[Asked] | None:
        """The connection to a node, if there is one by now."""
        if now < self._not_before_s.get(node_id, 0.0):
            return None
        try:
            connection = self._brokers.connected(node_id)
        except LASTING:
            raise
        except (OSError, BrokerError) as error:
            self._problem = str(error)
            self._not_before_s[node_id] = now + self._backoff_s
            heapq.heappush(self._wake_at_s, now + self._backoff_s)
            self._connecting_since_s.pop(node_id, None)
            self._ask_for_leaders()
            return None
        if connection is None:
            since_s = self._connecting_since_s.setdefault(node_id, now)
            if now - since_s >= CONNECTED_SOON_S:
                self._ask_for_leaders()
            return None
        self._connecting_since_s.pop(node_id, None)
        return connection

    def _send_to(self, node_id: int, connection: ProduceConnection[Asked], now: float) -> None:
        boxes = self._to_send[node_id]
        while (
            boxes
            and connection.in_flight < self._most_in_flight
            and not connection.unsent
            and not connection.throttled_s(self._request_timeout_s)
        ):
            chosen = self._chosen(boxes, node_id, now)
            if not chosen:
                return
            if self._producing.compression_type == "zstd" and connection.version < ZSTD_FROM:
                raise unwritten.codec_unknown(chosen[0].tp, self._brokers.name(node_id))
            self._add_to_transaction(chosen)
            asked: Asked = []
            for box in chosen:
                sealed = box.send(node_id)
                self._stamp(box, sealed)
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

    def _add_to_transaction(self, boxes: Iterable[Outbox]) -> None:
        if self._transaction is not None:
            new = {box.tp for box in boxes} - self._added
            if new:
                self._transaction.before_first(new)
                self._added |= new

    def _stamp(self, box: Outbox, sealed: Sealed) -> None:
        producer = self._session if self._transaction is None else self._transaction.producer
        sequence = UNKNOWN_SEQUENCE if producer is None else box.sequence(sealed)
        if sealed.stamped != sequence:
            producer_id, epoch = NO_PRODUCER if producer is None else (producer.producer_id, producer.epoch)
            self._encoder.stamp(sealed.batch.data, producer_id, epoch, sequence, self._transaction is not None)
            sealed.stamped = sequence

    def _count_sent(self, connection: ProduceConnection[Asked]) -> None:
        """Without acknowledgements a batch counts as written once it is sent."""
        if not connection.unsent:
            for box, sealed in self._unanswerable.pop(connection, ()):
                self._acknowledge(box, sealed, -1)

    # Answers

    def _receive(self, now: float) -> bool:
        came = False
        for node_id, connection in self._brokers.connections():
            try:
                connection.write()
                answers = connection.read()
            except OSError as error:
                self._lose(node_id, error, now)
                continue
            self._count_sent(connection)
            for answer in answers:
                came = True
                by_partition = {partition.tp: partition for partition in answer.partitions}
                for box, sealed in answer.asked:
                    self._answered(box, sealed, by_partition[box.tp], now)
        return came

    def _answered(self, box: Outbox, sealed: Sealed, answer: ProducedPartition, now: float) -> None:
        error = answer.error
        if error is None or error.reaction is Reaction.WRITTEN_BEFORE:
            self._acknowledge(box, sealed, answer.base_offset)
            return
        match error.reaction:
            case Reaction.TOO_LARGE:
                self._split(box, sealed)
            case Reaction.OUT_OF_SEQUENCE:
                if box.is_first(sealed):
                    raise unwritten.out_of_sequence(box.tp, error.name)
                self._return(box, [sealed], error.name, now)
            case Reaction.PRODUCER_FORGOTTEN:
                self._forgotten(box, sealed, answer, error, now)
            case Reaction.OUTDATED_PRODUCER:
                raise unwritten.outdated(box.tp, error.name, error.advice)
            case Reaction.RETRY | Reaction.FIND_LEADER | Reaction.REPLICAS_AWAY | Reaction.BROKERS_AWAY:
                said = error.advice and f"{error.name}: {error.advice}"
                self._return(box, [sealed], said or error.name, now)
                self._ask_for_leaders()
            case _:
                raise unwritten.refused(box.tp, error.name, error.advice, answer.message)

    def _acknowledge(self, box: Outbox, sealed: Sealed, base_offset: int) -> None:
        last_offset = box.last_offset
        if not box.acknowledged(sealed, base_offset):
            raise unwritten.cut_off(box.tp, base_offset, last_offset)
        self.held_bytes -= sealed.size
        self.records += sealed.batch.records
        self.sent_bytes += sealed.size
        self._last_answer_s = self._now()

    def _split(self, box: Outbox, sealed: Sealed) -> None:
        if sealed.batch.records < 2:
            raise unwritten.too_large(box.tp, sealed.size)
        halves = self._encoder.split(sealed.batch)
        self.held_bytes += sum(len(half.data) for half in halves) - sealed.size
        box.split(sealed, halves)
        self._to_send.setdefault(box.node, {})[box.tp] = box

    def _forgotten(
        self, box: Outbox, sealed: Sealed, answer: ProducedPartition, error: ProduceError, now: float
    ) -> None:
        """Brokers before Kafka 2.5 forget a producer whose records are deleted, and want it to begin anew.

        Where its last record should be in the log still, that record is lost.
        """
        if box.is_first(sealed) and answer.log_start_offset >= 0:
            if box.records and answer.log_start_offset <= box.last_offset:
                raise unwritten.out_of_sequence(box.tp, error.name)
            box.begin_anew()
        self._return(box, [sealed], error.name, now)

    def _return(self, box: Outbox, batches: list[Sealed], problem: str, now: float) -> None:
        box.returned(batches, problem, now, self._backoff_s, LONGEST_PAUSE_S)
        heapq.heappush(self._wake_at_s, box.not_before_s)
        self._to_send.setdefault(box.node, {})[box.tp] = box

    def _lose(self, node_id: int, error: Exception, now: float, unsent: Asked | None = None) -> None:
        """Give a connection up, and send again what had no answer."""
        problem = f"{self._brokers.name(node_id)}: {error}"
        for connected, connection in self._brokers.connections():
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
        self._brokers.give_up(node_id, error)
        self._ask_for_leaders()

    # Limits

    def _check_limits(self, now: float) -> None:
        for node_id, connection in self._brokers.connections():
            silent_s = 0.0 if connection.oldest_s is None else now - connection.oldest_s
            if silent_s >= self._request_timeout_s:
                self._lose(node_id, TimeoutError(f"no answer within kafka.request.timeout.ms ({silent_s:.1f} s)"), now)
            elif silent_s >= LOOK_ELSEWHERE_S:
                self._ask_for_leaders()
        limit_s = self._producing.delivery_timeout_ms / 1000
        for box in self._boxes.values():
            oldest = box.oldest
            if oldest is not None and now - oldest.since_s >= limit_s:
                raise unwritten.undelivered(box.tp, self._producing, self._why(box))

    def _why(self, box: Outbox | None) -> str:
        problem = (box is not None and box.problem) or self._problem
        return with_reason(problem, self._brokers.last_failure)

    def _call(self) -> _Call:
        return _Call(self)

    def begin_call(self) -> None:
        """The caller is here. Raises what an earlier call has raised."""
        if self._closed:
            raise RuntimeError("the sender is closed")
        if self._failure is not None:
            raise self._failure
        self._clock.come()

    def end_call(self, error: BaseException | None) -> None:
        """The caller goes. After an error each later call raises it, too."""
        self._clock.leave()
        self._failure = self._failure or error


class _Call:
    """A call of a sender's."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    def __enter__(self) -> None:
        self._sender.begin_call()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._sender.end_call(error)
