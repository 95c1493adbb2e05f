"""Brokers' answers to kafka-python's group coordinator, as far as the coordinator does not pass them on.

It retries most errors itself and in the end says only that time is up, raises the first error of a commit that failed
for several partitions, and notes a heartbeat that is refused for good in its log and nowhere else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import kafka.errors as kafka_errors

from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.values.timing import Timing
from spark_kafka_group.wire.lacking import lacking
from spark_kafka_group.wire.reactions import REACTIONS, RETRIED, Facts, Reaction, Request, advice, name_of

HANDLERS = {
    Request.FIND_COORDINATOR: "_handle_find_coordinator_response",
    Request.JOIN: "_process_join_group_response",
    Request.SYNC: "_process_sync_group_response",
    Request.HEARTBEAT: "_handle_heartbeat_response",
    Request.COMMIT: "_handle_offset_commit_response",
    Request.OFFSET_FETCH: "_handle_offset_fetch_response",
}
"""kafka-python's methods that take a response and raise its error."""

SENT_AT = {Request.JOIN: 1, Request.SYNC: 1, Request.HEARTBEAT: 1, Request.COMMIT: 1}
"""Which of their arguments says when the request was sent, by time.monotonic()."""
MEMBER_ID_REQUIRED = "MEMBER_ID_REQUIRED"
"""How every new dynamic member's first JoinGroup is answered: part of joining, and no failure."""
UNKNOWN_TOPIC = "UNKNOWN_TOPIC_OR_PARTITION"
UNKNOWN_FOR_S = 5.0
"""A coordinator learns of a new topic much sooner. If it refuses commits for this long, the topic was deleted, or the
controller does not reach the coordinator. The caller can find out which of the two, and need not retry for as long as
calls may take."""


class LongUnknownError(kafka_errors.KafkaError):  # type: ignore[misc]
    """Raised for a commit that was refused with UNKNOWN_TOPIC_OR_PARTITION until it is not sent again."""


@dataclass(frozen=True)
class Refusal:
    """An error that a broker answered."""

    error: str  # Kafka's name of it
    request: Request | None = None  # the request that it answers; None when that was not about groups
    topics: frozenset[str] = frozenset()  # the topics it is about, if it is about topics
    # Of a commit or an OffsetFetch: partitions with an error, by its name
    failed: dict[TopicPartition, str] = field(default_factory=dict)
    done: frozenset[TopicPartition] = frozenset()  # of these: partitions without an error
    lacks: str = ""  # what is not to be had, where nothing was sent, as brokers lack the request; else empty

    @property
    def reaction(self) -> Reaction | None:
        """Its reaction in the table; None where the table has none."""
        return None if self.request is None else REACTIONS.get(self.error, {}).get(self.request)

    def describe(self, facts: Facts) -> str:
        """The error, its partitions, and advice."""
        if self.lacks:
            return self.lacks
        errors = {self.error: self.topics}
        for tp, error in self.failed.items():
            errors[error] = errors.get(error, frozenset()) | {tp.topic}
        changes = [text for error, topics in errors.items() if (text := advice(error, self.request, facts, topics))]
        return ": ".join([self._whom(), "; ".join(changes)] if changes else [self._whom()])

    def _whom(self) -> str:
        partitions: dict[str, list[str]] = {}
        for tp, error in sorted(self.failed.items()):
            partitions.setdefault(error, []).append(str(tp))
        text = ", ".join(f"{error} for {' '.join(tps)}" for error, tps in partitions.items()) or self.error
        if self.done and self.request is Request.COMMIT:
            text += f" ({' '.join(map(str, sorted(self.done)))} committed)"
        return text


class Answers:
    """Answers to a coordinator of kafka-python's. Its I/O thread writes here, others read.

    `last`: the last error since :meth:`forget` that made kafka-python ask again, if that has not been answered without
        one.
    `heartbeats_refused`: why heartbeats fail for good, as long as they do; kafka-python sends them on and on.
    `timings`: requests that were answered without an error, from sending to the answer.
    `failed_rebalances`: JoinGroups and SyncGroups that were refused, and not only while the coordinator is looked for.
    """

    def __init__(self) -> None:
        self.facts = Facts()
        self.last: Refusal | None = None
        self.heartbeats_refused: Refusal | None = None
        self.timings = {request: Timing() for request in SENT_AT}
        self.failed_rebalances = 0
        self._unknown_since: float | None = None  # when a commit was first refused as its topic is not known

    def listen_to(self, coordinator: Any, facts: Facts) -> None:
        """Collect the answers to this coordinator of kafka-python's from now on; texts name these facts."""
        self.facts = facts
        for request, handler in HANDLERS.items():
            setattr(coordinator, handler, self._listening(request, getattr(coordinator, handler)))

    def forget(self) -> None:
        """Before a call: errors of calls before it say nothing about it."""
        self.last = None
        self._unknown_since = None

    def last_described(self) -> str | None:
        return None if self.last is None else f"last answer: {self.last.describe(self.facts)}"

    def _listening(self, request: Request, handle: Callable[..., Any]) -> Callable[..., Any]:
        def heard(*arguments: Any) -> Any:
            refusal = None
            try:
                return handle(*arguments)
            except kafka_errors.KafkaError as error:
                refusal = error.refusal = _refusal(error, request, arguments[-1])
                if request is Request.COMMIT and refusal.error == UNKNOWN_TOPIC:
                    self._check_unknown(refusal, error)
                raise
            finally:
                self._count(request, arguments, refusal)
                if request is Request.HEARTBEAT:
                    self.heartbeats_refused = refusal if refusal and refusal.reaction is Reaction.FATAL else None
                elif refusal is not None and refusal.reaction in RETRIED:
                    self.last = refusal
                elif self.last is not None and self.last.request is request:
                    self.last = None

        return heard

    def _check_unknown(self, refusal: Refusal, error: Exception) -> None:
        now_s = time.monotonic()
        if self._unknown_since is None:
            self._unknown_since = now_s
        elif now_s >= self._unknown_since + UNKNOWN_FOR_S:
            raise LongUnknownError(refusal.describe(self.facts)) from error

    def _count(self, request: Request, arguments: tuple[Any, ...], refusal: Refusal | None) -> None:
        if refusal is None and request in SENT_AT:
            now_s = time.monotonic()
            self.timings[request].record((now_s - arguments[SENT_AT[request]]) * 1000, now_s)
        elif request in (Request.JOIN, Request.SYNC) and refusal is not None:
            self.failed_rebalances += refusal.error != MEMBER_ID_REQUIRED and refusal.reaction not in RETRIED


def refusal_of(error: Exception) -> Refusal | None:
    """The broker's refusal, if `error` comes from one."""
    heard: Refusal | None = getattr(error, "refusal", None)
    if heard is not None or not isinstance(error, kafka_errors.BrokerResponseError):
        return heard
    if isinstance(error, kafka_errors.RetriableError):
        return None  # kafka-python raises these for its own reasons too
    if isinstance(error, kafka_errors.IncompatibleBrokerVersion):
        return Refusal(name_of(type(error)), lacks=lacking(error))
    topics = error.args[0] if isinstance(error, kafka_errors.TopicAuthorizationFailedError) and error.args else ()
    return Refusal(name_of(type(error)), topics=frozenset([topics] if isinstance(topics, str) else topics))


def _refusal(error: Any, request: Request, response: Any) -> Refusal:
    """The refusal behind `error`, which the handler of a response raised."""
    if isinstance(error, kafka_errors.CommitFailedError):
        error = error.args[0]  # the answer
    codes = dict(_partition_codes(response)) if request in (Request.COMMIT, Request.OFFSET_FETCH) else {}
    return Refusal(
        name_of(type(error)),
        request,
        failed={tp: name_of(kafka_errors.for_code(code)) for tp, code in codes.items() if code},
        done=frozenset(tp for tp, code in codes.items() if not code),
    )


def _partition_codes(response: Any) -> Iterator[tuple[TopicPartition, int]]:
    groups = getattr(response, "groups", None)
    for topic in groups[0].topics if groups else response.topics:
        for partition in topic.partitions:
            yield TopicPartition(topic.name, partition.partition_index), partition.error_code
