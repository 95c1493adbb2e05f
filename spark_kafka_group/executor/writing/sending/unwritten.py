"""Errors of rows that cannot be written, or may be lost, with what to change."""

from __future__ import annotations

from spark_kafka_group.errors import BrokerTimeoutError, RecordTooLargeError, WriteError
from spark_kafka_group.options.producing import Producing
from spark_kafka_group.text.foreign_text import printable
from spark_kafka_group.values.offsets import TopicPartition

RUN_AGAIN = "The task has to run again, which Spark does as often as spark.task.maxFailures allows"


def refused(tp: TopicPartition, name: str, advice: str | None, message: str) -> WriteError:
    """A broker does not write the records, and will not. `message` has its own words."""
    said = f" (the broker says: {printable(message)})" if message else ""
    return WriteError(*tp, f"the broker refuses the records: {name}{': ' + advice if advice else ''}{said}")


def outdated(tp: TopicPartition, name: str, advice: str | None) -> WriteError:
    """The producer may not write any more."""
    return WriteError(*tp, f"the broker does not take records of this task any more: {name}: {advice}. {RUN_AGAIN}")


def too_large(tp: TopicPartition, size: int) -> RecordTooLargeError:
    """A record that cannot be halved is larger than its topic takes."""
    return RecordTooLargeError(
        *tp,
        f"a record batch of one record, of {size} bytes, is larger than the topic takes: raise max.message.bytes of "
        f"topic {tp.topic} (unless it is set there, the brokers' message.max.bytes), or set kafka.compression.type",
    )


def lost(tp: TopicPartition, why: str) -> WriteError:
    """Records that brokers had acknowledged may be gone."""
    return WriteError(*tp, f"rows that the brokers had acknowledged may be lost: {why}. {RUN_AGAIN}")


def made_again(tp: TopicPartition) -> WriteError:
    """The topic is another one than that in which records were acknowledged."""
    return lost(tp, f"topic {tp.topic} was deleted and made again while they were written")


def cut_off(tp: TopicPartition, base_offset: int, last_offset: int) -> WriteError:
    """A log does not go on behind the last record that was acknowledged."""
    return lost(
        tp,
        f"the next ones are at offset {base_offset}, though offset {last_offset} had been written before, as after an "
        f"unclean leader election, or when the topic is deleted and made again",
    )


def out_of_sequence(tp: TopicPartition, name: str) -> WriteError:
    """A log does not have the records that come before those that were sent."""
    return lost(
        tp,
        f"the log lacks records of this producer, as after an unclean leader election, or when the topic is deleted "
        f"and made again ({name})",
    )


def no_such_partition(tp: TopicPartition, partitions: int | None) -> WriteError:
    """Brokers have not known the partition for a while."""
    if partitions is None:
        return WriteError(*tp, f"topic {tp.topic} does not exist: create it")
    return WriteError(*tp, f"topic {tp.topic} has {partitions} partitions: add partitions, or write to one of these")


def may_not_write(tp: TopicPartition, advice: str | None) -> WriteError:
    """This user may not know of the topic."""
    return WriteError(*tp, f"TOPIC_AUTHORIZATION_FAILED: {advice}")


def codec_unknown(tp: TopicPartition, broker: str) -> WriteError:
    """A broker is too old for zstd."""
    return WriteError(
        *tp, f"{broker} does not know kafka.compression.type zstd: set another one, or upgrade it to Kafka 2.1 or newer"
    )


def undelivered(tp: TopicPartition, producing: Producing, problem: str) -> BrokerTimeoutError:
    """A record batch was not acknowledged in time."""
    return BrokerTimeoutError(
        f"{tp}: not acknowledged within kafka.delivery.timeout.ms ({producing.delivery_timeout_ms}): {problem}"
    )


def buffer_full(tp: TopicPartition, producing: Producing, problem: str) -> BrokerTimeoutError:
    """The task waits for room, and no broker makes any."""
    return BrokerTimeoutError(
        f"{tp}: kafka.buffer.memory ({producing.buffer_memory} bytes) is full, and no broker has acknowledged anything "
        f"within kafka.max.block.ms ({producing.max_block_ms}): {problem}"
    )
