"""What a task writes with; connections, and what is known of topics, stay in this Python worker for the next task."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from spark_kafka_group.executor.encode import Encoder
from spark_kafka_group.executor.writing.sender import Sender
from spark_kafka_group.executor.writing.sending.stamping import Transaction
from spark_kafka_group.options.sink_options import SinkOptions
from spark_kafka_group.wire.leaders import Leaders
from spark_kafka_group.wire.writable_topics import WritableTopics

_topics: WeakKeyDictionary[Leaders[Any], dict[float, WritableTopics]] = WeakKeyDictionary()


def sender_for(options: SinkOptions, encoder: Encoder, transaction: Transaction | None = None) -> Sender:
    """A sender of one task, over the connections of the task before."""
    return Sender(options.client, options.producing, encoder, transaction)


def topics_of(sender: Sender, options: SinkOptions) -> WritableTopics:
    """Topics, looked up over the sender's connections."""
    of_brokers = _topics.setdefault(sender.brokers, {})
    within_ms = options.producing.max_block_ms
    if within_ms not in of_brokers:
        of_brokers[within_ms] = WritableTopics(sender.brokers, within_ms, options.connection.metadata_max_age_ms)
    return of_brokers[within_ms]
