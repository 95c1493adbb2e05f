"""Before any row moves: brokers can be reached, the topic of a write exists, and the user may write there."""

from __future__ import annotations

import dataclasses

from spark_kafka_group.errors import BrokerTimeoutError
from spark_kafka_group.options.sink_options import SinkOptions
from spark_kafka_group.wire.broker_connection import BrokerConnection
from spark_kafka_group.wire.client.refusals import NO_LISTENER
from spark_kafka_group.wire.leaders import Leaders
from spark_kafka_group.wire.writable_topics import WritableTopics

REACHED_WITHIN_MS = 10_000
"""A batch write is not begun if no broker has answered by then. Its tasks would wait for kafka.max.block.ms each."""


def check(options: SinkOptions) -> None:
    """Look the topic of the option up, or only reach brokers: topics of a column are looked up by the tasks that have
    rows for them.

    Raises
    ------
    BrokerError
    """
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
