"""Records to try a query on."""

from __future__ import annotations

PARTITIONS = 3
"""The partitions of a new topic."""
REACHED_WITHIN_MS = 5_000


def produce(bootstrap_servers: str, topic: str, records: int, argument: str = "--bootstrap-servers") -> None:
    """Send ``order 0``, ``order 1``, ... with a key each, and wait until the brokers have them; make a topic if needed.

    `argument` is the command's that names brokers, for the error.

    Raises
    ------
    RuntimeError
        When no broker answers, or the brokers do not take the records.
    """
    from kafka import KafkaAdminClient, KafkaProducer
    from kafka.admin import NewTopic
    from kafka.errors import KafkaError, KafkaTimeoutError, TopicAlreadyExistsError

    try:
        try:
            admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers, bootstrap_timeout_ms=REACHED_WITHIN_MS)
        except KafkaTimeoutError as error:
            raise RuntimeError(
                f"no broker answers at {bootstrap_servers}: name another one with {argument}, or start one: "
                f"python -m spark_kafka_group.testing start"
            ) from error
        try:
            admin.create_topics([NewTopic(topic, PARTITIONS, -1)])
        except TopicAlreadyExistsError:
            pass
        finally:
            admin.close()
        producer = KafkaProducer(bootstrap_servers=bootstrap_servers, enable_idempotence=False)
        try:
            sent = [producer.send(topic, key=b"%d" % number, value=b"order %d" % number) for number in range(records)]
            producer.flush()
            for future in sent:
                future.get(timeout=30)
        finally:
            producer.close()
    except (KafkaError, ValueError) as error:
        raise RuntimeError(f"{bootstrap_servers} takes no records for topic {topic}: {error}") from error
