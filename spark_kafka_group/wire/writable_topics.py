"""Topics that are written to: whether they exist, who leads their partitions, and whether the user may write there."""

from __future__ import annotations

import time
from typing import Any

import kafka.errors as kafka_errors

from spark_kafka_group.errors import BrokerError, BrokerTimeoutError
from spark_kafka_group.wire.client.connect import ms_until, translated
from spark_kafka_group.wire.leaders import Leaders
from spark_kafka_group.wire.reactions import RETRIED, Facts, Request, advice, reaction_to

WRITE = 4
"""The number of AclOperation.WRITE: of its bit among the operations that a broker allows."""
UNKNOWN_AFTER_S = 3.0
"""A topic that brokers have not known for this long does not exist. Not all of them know a new topic at once."""
DENIED = "TOPIC_AUTHORIZATION_FAILED"

LeadersOfTopic = tuple[int | None, ...]


class WritableTopics:
    """What brokers say of topics, kept for kafka.metadata.max.age.ms.

    A topic that does not exist is made when it is asked for, where brokers have auto.create.topics.enable, as with
    Java's producer.

    Parameters
    ----------
    cluster
        Its client asks.
    within_ms
        How long brokers may take to answer, kafka.max.block.ms.
    """

    def __init__(self, cluster: Leaders[Any], within_ms: float, max_age_ms: int) -> None:
        self._cluster = cluster
        self._within_ms = within_ms
        self._max_age_s = max_age_ms / 1000
        self._known: dict[str, tuple[float, LeadersOfTopic]] = {}

    def leaders(self, topic: str, refresh: bool = False) -> LeadersOfTopic:
        """Node id of the leader of each partition; None for one without a leader.

        Parameters
        ----------
        refresh
            Ask even where a recent answer is known.

        Raises
        ------
        BrokerError
            When the topic does not exist, the user may not write to it, or no broker answers in time.
        """
        known = self._known.get(topic)
        if known is not None and not refresh and time.monotonic() - known[0] < self._max_age_s:
            return known[1]
        leaders = self._asked(topic)
        self._known[topic] = time.monotonic(), leaders
        return leaders

    def _asked(self, topic: str) -> LeadersOfTopic:
        deadline = time.monotonic() + self._within_ms / 1000
        doing, unknown_since = f"looking up topic {topic}", None
        while True:
            try:
                with translated(doing, limit="kafka.max.block.ms", failure=lambda: self._cluster.last_failure):
                    found = self._ask(topic, ms_until(deadline))
                    if found is not None:
                        return found
            except BrokerError as error:
                if not _may_pass(error) or time.monotonic() >= deadline:
                    raise
                unknown_since = None
            else:
                unknown_since = unknown_since or time.monotonic()
                if time.monotonic() - unknown_since >= min(UNKNOWN_AFTER_S, self._within_ms / 1000):
                    raise BrokerError(f"topic {topic} does not exist: create it, or correct its name")
            time.sleep(self._cluster.retry_backoff_s)

    def _ask(self, topic: str, within_ms: float) -> LeadersOfTopic | None:
        """The answer of a broker; None if it does not know the topic."""
        found = self._cluster.metadata_to_write(topic, within_ms)
        error = kafka_errors.for_code(found.error_code)
        if error is kafka_errors.UnknownTopicOrPartitionError or error is kafka_errors.LeaderNotAvailableError:
            return None
        allowed = found.authorized_operations
        denied = allowed is not None and WRITE not in {int(operation) for operation in allowed}
        if denied or error is kafka_errors.TopicAuthorizationFailedError:
            raise BrokerError(f"writing to topic {topic}: {advice(DENIED, Request.PRODUCE, Facts(), [topic])}")
        if error is not kafka_errors.NoError:
            raise error(topic)
        by_number = {partition.partition_index: partition.leader_id for partition in found.partitions}
        if not by_number:
            return None
        leaders = (by_number.get(number, -1) for number in range(max(by_number) + 1))
        return tuple(leader if leader >= 0 else None for leader in leaders)


def _may_pass(error: BrokerError) -> bool:
    cause = error.__cause__
    return isinstance(error, BrokerTimeoutError) or (cause is not None and reaction_to(cause) in RETRIED)
