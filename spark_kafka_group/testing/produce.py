"""Records to try a query on."""

from __future__ import annotations

PARTITIONS = 3
"""Of a topic that is not there yet."""


def produce(bootstrap_servers: str, topic: str, records: int) -> None:
    """Send ``order 0``, ``order 1``, ... with a key each, and wait until the brokers have them; make a topic if needed.

    Raises
    ------
    RuntimeError
        When no broker answers, or the brokers do not take the records.
    """
    from kafka import KafkaAdminClient, KafkaProducer
    from kafka.admin import NewTopic
    from kafka.errors import KafkaError, TopicAlreadyExistsError

    try:
        admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
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
