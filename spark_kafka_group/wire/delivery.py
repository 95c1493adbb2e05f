"""Delivers records to topics from a thread of its own, so that callers wait for brokers only in `flush`.

One producer sends a record until it is acknowledged or refused. However often it does, the record keeps its sequence
number, so a log has it once. It is given up when brokers that answer do not take it for a while; where outages are
outlived, the time in which none answers does not count.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from spark_kafka_group.errors import BrokerError, BrokerTimeoutError
from spark_kafka_group.offsets import TopicPartition
from spark_kafka_group.options import ClientOptions
from spark_kafka_group.wire.client.unreached import unreached
from spark_kafka_group.wire.producer import ATTEMPTS_WITHIN, Headers, Producer
from spark_kafka_group.wire.task_outage import Outage, with_reason

Settled = Callable[[BrokerError | None], None]

LOOKS_EVERY_S = 0.2
LOOKED_UP_WITHIN_S = 0.01
SILENT_AFTER_S = 1.0
"""A broker is away after this long without an answer about records under way."""
GONE_AFTER_S = 5.0
"""A topic does not exist if all answers of brokers lack it for this long."""
ASKED_WITHIN_S = 3.0
"""Between two answers of brokers. After a longer silence they may have restarted, and not know all topics yet."""
CLOSED_WITHIN_S = 6.0


@dataclass(slots=True)
class _Letter:
    tp: TopicPartition
    key: bytes | None
    value: bytes | None
    headers: Headers
    settled: Settled
    since_s: float
    sent: bool = False
    """Whether the producer has it. From then on its partition exists; before, it has the number of its first one."""
    reported: bool = False
    """Whether its callback was called."""


class Delivery:
    """Connects when the first record is sent. Thread-safe.

    Parameters
    ----------
    outlives
        Whether brokers that are away are waited for, up to maxBrokerOutage if that is set; else a record is given up
        after four times kafka.request.timeout.ms.
    """

    def __init__(self, options: ClientOptions, outlives: bool) -> None:
        self._options = options
        self._limit_s = options.connection.request_timeout_ms * ATTEMPTS_WITHIN / 1000
        self._outage = Outage(options, self) if outlives else None
        self._handed_over: queue.SimpleQueue[_Letter | None] = queue.SimpleQueue()
        self._lock = threading.Condition()
        self._under_way: dict[int, _Letter] = {}
        self._failure: BrokerError | None = None
        self._closed = False
        self._gave_up = False
        self._producer: Producer | None = None
        # For the thread; the producer adds its results to the first two
        self._heard_s: dict[TopicPartition, float] = {}
        self._problems: dict[TopicPartition, BrokerError] = {}
        self._no_answer = BrokerError("no answer")
        self._waiting: list[_Letter] = []
        self._away: set[TopicPartition] = set()
        self._back_s: dict[TopicPartition, float] = {}
        self._unknown: dict[TopicPartition, tuple[float, float]] = {}
        self._thread = threading.Thread(target=self._run, name="groupkafka-delivery", daemon=True)
        self._thread.start()

    @property
    def last_failure(self) -> str | None:
        """Why the last connection could not be made, or ended, with its address."""
        return None if self._producer is None else self._producer.last_failure

    def known(self) -> list[str]:
        """Addresses of brokers: those in the last metadata, else kafka.bootstrap.servers. No I/O."""
        known = [] if self._producer is None else self._producer.known()
        return known or self._options.connection.bootstrap_servers.split(",")

    def send(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: Headers, settled: Settled
    ) -> None:
        """Send a record as :meth:`Producer.send`, and do not wait.

        `settled` is called once the record is acknowledged, or with the error with which it is given up; from another
        thread, unless an earlier failure is known already.
        """
        letter = _Letter(TopicPartition(topic, partition), key, value, headers, settled, time.monotonic())
        with self._lock:
            failure = self._failure
            if failure is None:
                self._under_way[id(letter)] = letter
        if failure is None:
            self._handed_over.put(letter)
        else:
            settled(failure)

    def flush(self) -> None:
        """Wait until every record sent so far is settled, and its `settled` has returned."""
        with self._lock:
            self._lock.wait_for(lambda: not self._under_way)

    def close(self) -> None:
        """Give up records that are not settled, and close connections. Harmless when repeated."""
        self._closed = True
        self._give_up(BrokerError("closed before it was acknowledged"))
        self._handed_over.put(None)
        self._thread.join(CLOSED_WITHIN_S)

    # The thread

    def _run(self) -> None:
        look_at = 0.0
        try:
            while not self._closed and self._failure is None:
                self._collect()
                if self._closed:
                    return
                if self._producer is None:
                    self._connect()
                if self._producer is not None:
                    self._hand_on(self._producer)
                now = time.monotonic()
                if now >= look_at:
                    self._look(now)
                    look_at = now + LOOKS_EVERY_S
        except BrokerError as error:
            self._give_up(error)
        except BaseException as error:  # noqa: BLE001 - flush() raises it
            self._give_up(BrokerError(f"sending records: {type(error).__name__}: {error}"))
        finally:
            if self._outage is not None and not self._gave_up:
                self._outage.answered(self._away)
            if self._producer is not None:
                self._producer.close()

    def _collect(self) -> None:
        """Take records that were handed over, waiting a little for the first."""
        try:
            soon = self._waiting and not self._away  # then topics are looked up
            letter = self._handed_over.get(timeout=LOOKED_UP_WITHIN_S if soon else LOOKS_EVERY_S)
            while True:
                if letter is not None:
                    self._waiting.append(letter)
                letter = self._handed_over.get_nowait()
        except queue.Empty:
            return

    def _connect(self) -> None:
        if not self._waiting or (self._outage is not None and self._outage.put_off(self._waiting[0].tp)):
            return
        try:
            self._producer = Producer(self._options, self._attempted, speaks=self._outage is None)
        except (OSError, BrokerError) as error:
            if self._outage is None or not unreached(error):
                raise
            self._no_answer = error if isinstance(error, BrokerError) else BrokerError(str(error))
        else:
            self._no_answer = BrokerError("no answer")

    def _hand_on(self, producer: Producer) -> None:
        """Give the producer the records for topics that are known."""
        waiting, self._waiting = self._waiting, []
        for letter in waiting:
            if letter.reported:  # given up while this thread was connecting
                continue
            count = producer.known_partitions(letter.tp.topic)
            if count is None:
                self._waiting.append(letter)
                continue
            letter.tp, letter.sent = TopicPartition(letter.tp.topic, letter.tp.partition % count), True
            producer.send_to(letter.tp, letter.key, letter.value, letter.headers, self._settling(letter))

    def _settling(self, letter: _Letter) -> Settled:
        def settled(error: BrokerError | None) -> None:
            self._heard_s[letter.tp] = time.monotonic()
            self._problems.pop(letter.tp, None)
            self._settle(letter, error)

        return settled

    def _attempted(self, tp: TopicPartition, problem: BrokerError, answered: bool) -> None:
        self._problems[tp] = problem
        if answered:
            self._heard_s[tp] = time.monotonic()

    def _look(self, now: float) -> None:
        """Note silent brokers, and give up records that have waited for too long.

        Raises
        ------
        BrokerError
        """
        first = self._first_under_way()
        if first and self._producer is not None:
            self._producer.check_refused()
        known_to_lack = self._unknown_to_brokers(first, now)
        silent = {tp for tp, letter in first.items() if now - self._last_word_s(letter) >= SILENT_AFTER_S}
        if self._outage is not None:
            self._wait_for(silent - known_to_lack, now, self._outage)
        for tp, letter in first.items():
            waited_s = now - max(letter.since_s, self._back_s.get(tp, letter.since_s))
            if tp not in self._away and waited_s >= self._limit_s:
                raise BrokerTimeoutError(
                    f"sending to {tp}: not acknowledged for {waited_s:.0f} s ({ATTEMPTS_WITHIN} x "
                    f"kafka.request.timeout.ms): {self._why(tp)}"
                )

    def _why(self, tp: TopicPartition) -> str:
        return with_reason(str(self._problems.get(tp, self._no_answer)), self.last_failure)

    def _first_under_way(self) -> dict[TopicPartition, _Letter]:
        """The oldest record of each partition that is not settled."""
        first: dict[TopicPartition, _Letter] = {}
        with self._lock:
            for letter in self._under_way.values():
                first.setdefault(letter.tp, letter)
        return first

    def _last_word_s(self, letter: _Letter) -> float:
        return max(letter.since_s, self._heard_s.get(letter.tp, letter.since_s))

    def _wait_for(self, away: set[TopicPartition], now: float, outage: Outage) -> None:
        """Take note of whose brokers are away.

        Raises
        ------
        BrokerTimeoutError
            When they have been for longer than maxBrokerOutage.
        """
        back = self._away - away
        self._away = away
        self._back_s.update(dict.fromkeys(back, now))
        outage.answered(back)
        due = sorted(tp for tp in away if not outage.put_off(tp))
        if due:
            outage.missed(due, self._problems.get(due[0], self._no_answer))

    def _unknown_to_brokers(self, first: Mapping[TopicPartition, _Letter], now: float) -> set[TopicPartition]:
        """Partitions that brokers, which answer, do not know; after a while they are known to be gone.

        Raises
        ------
        BrokerError
        """
        producer, unknown = self._producer, set[TopicPartition]()
        if producer is None:
            return unknown
        told_s = producer.refreshed_s
        for tp, letter in first.items():
            count = producer.known_partitions(tp.topic)
            if count is not None and (tp.partition < count or not letter.sent):
                self._unknown.pop(tp, None)
            elif told_s > letter.since_s:
                since_s, last_s = self._unknown.get(tp, (told_s, told_s))
                since_s = since_s if told_s - last_s <= ASKED_WITHIN_S else told_s
                self._unknown[tp] = since_s, told_s
                if told_s - since_s >= GONE_AFTER_S:
                    raise BrokerError(f"sending to {tp}: topic {tp.topic} does not exist: create it")
                if now - told_s < ASKED_WITHIN_S:
                    unknown.add(tp)
        return unknown

    # Of several threads

    def _settle(self, letter: _Letter, error: BrokerError | None) -> None:
        """Call a record's callback, unless it was called before."""
        with self._lock:
            if letter.reported:
                return
            letter.reported = True
        try:
            letter.settled(error)
        finally:
            with self._lock:
                self._under_way.pop(id(letter), None)
                self._lock.notify_all()

    def _give_up(self, error: BrokerError) -> None:
        """Fail every record, those to come included."""
        with self._lock:
            if self._failure is None:
                self._failure = error
            letters = list(self._under_way.values())
            self._gave_up |= bool(letters)
        for letter in letters:
            self._settle(letter, error)
