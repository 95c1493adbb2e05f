"""Error texts about rows that cannot be written, once for both twins."""

from __future__ import annotations

from spark_kafka_group.errors import RecordTooLargeError, WriteError


def too_large(topic: str, partition: int, size: int, max_request_size: int) -> RecordTooLargeError:
    return RecordTooLargeError(
        topic,
        partition,
        f"a row makes a record of {size} bytes, and kafka.max.request.size is {max_request_size}: raise it, and "
        f"max.message.bytes of topic {topic} if that is lower, or write smaller values",
    )


def null_header(topic: str, partition: int) -> WriteError:
    return WriteError(topic, partition, "a row has a header that is null: leave it out of column headers")


def null_header_key(topic: str, partition: int) -> WriteError:
    return WriteError(topic, partition, "a row has a header without a key: a header's value may be null, its key not")


def short_buffer(column: str, buffer: str, size: int, needed: int) -> ValueError:
    return ValueError(f"column {column}: its {buffer} have {size} bytes, and its rows need {needed}")


def negative(name: str, value: int) -> ValueError:
    return ValueError(f"{name} is {value}: it must not be negative")


def contradiction(column: str, row: int, begin: int, end: int, size: int) -> ValueError:
    return ValueError(f"column {column}: row {row} is from {begin} to {end} of {size}")


def no_int32s(name: str, size: int) -> ValueError:
    return ValueError(f"{size} bytes of {name} are no int32 numbers")


def row_index(index: int, count: int) -> ValueError:
    return ValueError(f"index {index} is outside the {count} rows")


def position(value: int, count: int) -> ValueError:
    return ValueError(f"position {value} is outside the {count} indices")


def sizes(batch_size: int, max_request_size: int, limit: int) -> ValueError:
    return ValueError(
        f"batch_size ({batch_size}) must not be negative, and max_request_size ({max_request_size}) must be from 1 to "
        f"{limit}"
    )


def partition_count(value: int) -> ValueError:
    return ValueError(f"partition_count is {value}: it must be above 0")


def row_partition(row: int, partition: int, count: int) -> ValueError:
    return ValueError(f"row {row} has partition {partition}, and there are {count}")


def empty_batch(topic: str, partition: int) -> ValueError:
    return ValueError(f"{topic}-{partition}: a record batch without a record cannot be sealed")


def no_batch(size: int) -> ValueError:
    return ValueError(f"{size} bytes are no record batch")
