"""Topics that are written to: whether they exist, who leads them, whether the user may write."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import kafka.errors as kafka_errors

from spark_kafka_group.errors import BrokerError, BrokerTimeoutError
from spark_kafka_group.options.sink_options import SinkOptions
from spark_kafka_group.text.foreign_text import listed, printable
from spark_kafka_group.wire.broker_connection import BrokerConnection
from spark_kafka_group.wire.client.connect import ms_until, translated
from spark_kafka_group.wire.client.refusals import NO_LISTENER
from spark_kafka_group.wire.leaders import Leaders
from spark_kafka_group.wire.reactions import RETRIED, Facts, Request, advice, reaction_to

log = logging.getLogger(__name__)


SAID_AFTER_S = 10.0  # Kafka usually has another leader before


class LongWait:
    """One wait after the other. For one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None

    def lasts(self, what: str, waited_s: float, problem: Callable[[], object]) -> None:
        """Warn of a wait that is long by now, once. `what`: the partition, or what is looked up. `problem`: says why
        there is no answer."""
        if self._since is None and waited_s >= SAID_AFTER_S:
            self._since = self._clock() - waited_s
            log.warning(
                "%s: brokers are away, or do not answer: %s. The task waits for them, and goes on",
                what, printable(str(problem())),
            )  # fmt: skip

    def over(self) -> None:
        """Brokers have answered."""
        if self._since is not None:
            log.warning("brokers answer again, after %.0f s", self._clock() - self._since)
            self._since = None


WRITE = 4  # the number of AclOperation.WRITE: of its bit among the operations that a broker allows
UNKNOWN_AFTER_S = 3.0
"""A topic that brokers have not known for this long does not exist. Not all of them know a new topic at once."""
DENIED = "TOPIC_AUTHORIZATION_FAILED"

LeadersOfTopic = tuple[int | None, ...]


class WritableTopics:
    """What brokers say of topics, kept for kafka.metadata.max.age.ms. A topic that does not exist is made when it is
    asked for, where brokers have auto.create.topics.enable, as with Java's producer. `cluster`: its client asks.
    `within_ms`: how long brokers may take to answer. `limit`: of that, for errors."""

    def __init__(
        self, cluster: Leaders[Any], within_ms: float, max_age_ms: int, limit: str = "kafka.max.block.ms"
    ) -> None:
        self._limit = limit
        self._cluster = cluster
        self._within_ms = within_ms
        self._max_age_s = max_age_ms / 1000
        self._known: dict[str, tuple[float, LeadersOfTopic]] = {}

    def leaders(self, topic: str, refresh: bool = False) -> LeadersOfTopic:
        """Node id of the leader of each partition; None for one without a leader. `refresh`: ask even where a recent
        answer is known. Raises BrokerError when the topic does not exist, the user may not write to it, or no broker
        answers in time."""
        if refresh:
            self._known.pop(topic, None)
        self.look_up([topic])
        return self._known[topic][1]

    def look_up(self, topics: Collection[str]) -> None:
        """Have :meth:`leaders` know these topics: one request for all of which no recent answer is known. Raises
        BrokerError as of :meth:`leaders`."""
        before = time.monotonic() - self._max_age_s
        unknown = {topic for topic in topics if topic not in self._known or self._known[topic][0] <= before}
        if unknown:
            self._ask_until_known(unknown)

    def _ask_until_known(self, topics: set[str]) -> None:
        began, wait = time.monotonic(), LongWait()
        deadline = began + self._within_ms / 1000
        unknown_since = None
        while True:
            doing = f"looking up topic {listed(sorted(topics))}"
            try:
                with translated(doing, limit=self._limit, failure=lambda: self._cluster.last_failure):
                    topics = self._ask(topics, ms_until(deadline))
                    wait.over()
                    if not topics:
                        return
            except BrokerError as error:
                if not _may_pass(error) or time.monotonic() >= deadline:
                    raise
                unknown_since = None
                wait.lasts(doing, time.monotonic() - began, partial(str, error))
            else:
                unknown_since = unknown_since or time.monotonic()
                if time.monotonic() - unknown_since >= min(UNKNOWN_AFTER_S, self._within_ms / 1000):
                    raise BrokerError(f"topic {min(topics)} does not exist: create it, or correct its name")
            time.sleep(self._cluster.retry_backoff_s)

    def _ask(self, topics: set[str], within_ms: float) -> set[str]:
        """Take a broker's answer; those of `topics` that it does not know."""
        answer = self._cluster.metadata_to_write(topics, within_ms)
        now = time.monotonic()
        for found in answer:
            leaders = self._leaders_in(found, raises=found.name in topics)
            if leaders is not None:
                self._known[found.name] = now, leaders
        return {topic for topic in topics if topic not in self._known or self._known[topic][0] < now}

    def _leaders_in(self, found: Any, raises: bool) -> LeadersOfTopic | None:
        """Of the answer about a topic; None if the broker does not know it, or without `raises`, refuses it."""
        error = kafka_errors.for_code(found.error_code)
        if error is kafka_errors.UnknownTopicOrPartitionError or error is kafka_errors.LeaderNotAvailableError:
            return None
        allowed = found.authorized_operations
        denied = allowed is not None and WRITE not in {int(operation) for operation in allowed}
        refused = denied or error is not kafka_errors.NoError
        if refused and not raises:
            return None
        if denied or error is kafka_errors.TopicAuthorizationFailedError:
            topic = found.name
            raise BrokerError(f"writing to topic {topic}: {advice(DENIED, Request.PRODUCE, Facts(), [topic])}")
        if refused:
            raise error(found.name)
        by_number = {partition.partition_index: partition.leader_id for partition in found.partitions}
        if not by_number:
            return None
        leaders = (by_number.get(number, -1) for number in range(max(by_number) + 1))
        return tuple(leader if leader >= 0 else None for leader in leaders)


def _may_pass(error: BrokerError) -> bool:
    cause = error.__cause__
    return isinstance(error, BrokerTimeoutError) or (cause is not None and reaction_to(cause) in RETRIED)


REACHED_WITHIN_MS = 10_000
"""A batch write is not begun if no broker has answered by then. Its tasks would wait for kafka.max.block.ms each."""


def check(options: SinkOptions) -> None:
    """Look the option's topic up, or only reach brokers: tasks look up topics of a column. Raises BrokerError."""
    topic = options.writing.topic
    limits_ms = {
        f"{REACHED_WITHIN_MS // 1000} s": REACHED_WITHIN_MS,
        "kafka.max.block.ms": options.producing.max_block_ms,
        "kafka.request.timeout.ms": options.connection.request_timeout_ms,
    }
    within_ms, limit = min((limit_ms, name) for name, limit_ms in limits_ms.items())
    client = options.client
    connection = dataclasses.replace(client.connection, request_timeout_ms=max(1, within_ms))
    leaders: Leaders[BrokerConnection] = Leaders(dataclasses.replace(client, connection=connection), "driver")
    try:
        if topic is None:
            leaders.reach(limit)
            return
        WritableTopics(leaders, within_ms, options.connection.metadata_max_age_ms, limit).leaders(topic)
    except BrokerTimeoutError as error:
        if NO_LISTENER not in str(error):
            raise
        raise BrokerTimeoutError(f"{error}. Correct kafka.bootstrap.servers, or start the broker") from error
    finally:
        leaders.close()
