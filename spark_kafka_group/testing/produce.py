"""Records to try a query on."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable

PARTITIONS = 3  # the partitions of a new topic
REACHED_WITHIN_MS = 5_000
ITEMS = ("espresso", "flat white", "cold brew", "croissant", "cinnamon roll")
FIRST_ORDER = datetime.datetime(2026, 1, 1, 9, tzinfo=datetime.UTC)


def text(number: int) -> bytes:
    """``order 0``, ``order 1``, ..."""
    return b"order %d" % number


def order(number: int) -> bytes:
    """A JSON object: the orders of a shop that sells something each second, from :data:`FIRST_ORDER` on."""
    at = FIRST_ORDER + datetime.timedelta(seconds=number)
    fields = {
        "order_id": number,
        "customer": f"customer-{number * 7919 % 100:02d}",
        "item": ITEMS[number % len(ITEMS)],
        "amount": (number * 37 % 900 + 200) / 100,
        "ordered_at": at.isoformat().replace("+00:00", "Z"),
    }
    return json.dumps(fields).encode()


VALUES: dict[str, Callable[[int], bytes]] = {"text": text, "json": order}


def produce(
    bootstrap_servers: str,
    topic: str,
    records: int,
    argument: str = "--bootstrap-servers",
    values: str = "text",
    partitions: int | None = None,
) -> None:
    """Send records with the keys ``0``, ``1``, ..., and wait until the brokers have them; make a topic if needed.

    `argument`: the command's that names brokers, for the error.
    `values`: what they hold: one of :data:`VALUES`.
    `partitions`: of the topic; :data:`PARTITIONS`, or as many as it has, if not given.
    Raises RuntimeError when no broker answers, the name is none of a topic, the topic is there with another number of
    partitions, or the brokers do not take the records.
    """
    from kafka import KafkaProducer
    from kafka.errors import KafkaError

    try:
        _make(bootstrap_servers, topic, partitions, argument)
        producer = KafkaProducer(bootstrap_servers=bootstrap_servers, enable_idempotence=False)
        try:
            sent = [producer.send(topic, key=b"%d" % number, value=VALUES[values](number)) for number in range(records)]
            producer.flush()
            for future in sent:
                future.get(timeout=30)
        finally:
            producer.close()
    except (KafkaError, ValueError) as error:
        raise RuntimeError(f"{bootstrap_servers} takes no records for topic {topic}: {error}") from error


def _make(bootstrap_servers: str, topic: str, partitions: int | None, argument: str) -> None:
    """Make the topic, unless it is there."""
    from kafka import KafkaAdminClient
    from kafka.admin import NewTopic
    from kafka.errors import InvalidTopicError, KafkaTimeoutError, TopicAlreadyExistsError

    try:
        admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers, bootstrap_timeout_ms=REACHED_WITHIN_MS)
    except KafkaTimeoutError as error:
        raise RuntimeError(
            f"no broker answers at {bootstrap_servers}: name another one with {argument}, or start one: "
            f"python -m spark_kafka_group.testing start"
        ) from error
    try:
        admin.create_topics([NewTopic(topic, partitions or PARTITIONS, -1)])
    except InvalidTopicError as error:
        raise RuntimeError(
            f"{topic!r} is not a topic name: letters, digits, '.', '_' and '-', at most 249 of them"
        ) from error
    except TopicAlreadyExistsError:
        there = len(admin.describe_topics([topic])[0]["partitions"])
        if partitions not in (None, there):
            raise RuntimeError(f"topic {topic} is there with {there} partitions: leave --partitions out") from None
    finally:
        admin.close()
