"""Headers that tell why a record is in a retry or dead-letter topic, in the words of those who read them.

Three dialects: ``connect`` (``DeadLetterQueueReporter``: UTF-8 texts), ``spring`` (``DeadLetterPublishingRecoverer``:
big-endian integers) and ``kip1191`` (the brokers' own dead letters of share groups: UTF-8 texts). Whatever the dialect,
Spring's ``retry_topic-`` headers count attempts. A hop replaces what the one before wrote, so headers do not grow, and
topic, partition and offset stay those of the record's first topic.
"""

from __future__ import annotations

import struct
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

DIALECTS = ("connect", "spring", "kip1191")
CONNECT, SPRING, KIP1191, RETRY = "__connect.errors.", "kafka_dlt-", "__dlq.errors.", "retry_topic-"
PREFIXES = (CONNECT, SPRING, KIP1191, RETRY)
ATTEMPTS = f"{RETRY}attempts"
ORIGINAL_TIMESTAMP = f"{RETRY}original-timestamp"
BACKOFF_TIMESTAMP = f"{RETRY}backoff-timestamp"
MOST_ATTEMPTS = 2**15 - 1
MOST_TRACE = 8192
"""Characters of a stack trace that are kept, its end: headers count for a topic's max.message.bytes."""
TIMESTAMP_TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
SOURCE = "groupkafka source"
"""The handler that headers name where the source itself could not read a record."""

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True)
class Origin:
    """The record as it was first read.

    Attributes
    ----------
    timestamp_type
        -1 none, 0 CreateTime, 1 LogAppendTime.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int


@dataclass(frozen=True)
class Failure:
    """Why a handler could not do its work, as texts: exceptions need not be picklable.

    Attributes
    ----------
    exception, cause
        Full names of the exception's class, and of its cause's if it has one.
    fatal
        Whether it is of a kind for which no further attempt is made.
    """

    exception: str
    message: str
    trace: str
    cause: str | None = None
    fatal: bool = False

    @classmethod
    def of(cls, error: BaseException, fatal: bool = False) -> Failure:
        cause = error.__cause__ or error.__context__
        trace = "".join(traceback.format_exception(error))[-MOST_TRACE:]
        return cls(full_name(type(error)), str(error), trace, None if cause is None else full_name(type(cause)), fatal)


@dataclass(frozen=True)
class Reader:
    """Who read the record.

    Attributes
    ----------
    handler
        The function that failed, ``module:function``.
    """

    group: str
    handler: str
    task: int


def full_name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def attempts_made(headers: Headers) -> int:
    """How often handlers were given a record before this time: 0 for one that is not from a retry topic."""
    value = last(headers, ATTEMPTS)
    attempt = int.from_bytes(value) if value is not None and len(value) in (1, 4) else 1  # a byte in older Springs
    return attempt - 1 if 1 <= attempt <= MOST_ATTEMPTS else 0


def origin_of(headers: Headers, here: Origin) -> Origin:
    """Where a record was first read, which is `here` if its headers do not say anything else."""
    text = {name: value.decode(errors="replace") for name, value in headers if value is not None}
    for prefix in (CONNECT, KIP1191):
        topic, partition, offset = (text.get(f"{prefix}{name}") for name in ("topic", "partition", "offset"))
        if topic and (partition or "").isdecimal() and (offset or "").isdecimal():
            return Origin(topic, int(partition or 0), int(offset or 0), _first_timestamp(headers, here), 0)
    topic = text.get(f"{SPRING}original-topic")
    partition_bytes, offset_bytes = (last(headers, f"{SPRING}original-{name}") for name in ("partition", "offset"))
    if topic and partition_bytes and len(partition_bytes) == 4 and offset_bytes and len(offset_bytes) == 8:
        kind = text.get(f"{SPRING}original-timestamp-type")
        kinds = [number for number, name in TIMESTAMP_TYPES.items() if name == kind] or [0]
        partition_number, offset_number = int.from_bytes(partition_bytes), int.from_bytes(offset_bytes)
        return Origin(topic, partition_number, offset_number, _first_timestamp(headers, here), kinds[0])
    return here


def handed_on(
    headers: Headers, dialect: str, origin: Origin, failure: Failure, reader: Reader, attempts: int, due_ms: int | None
) -> list[tuple[str, bytes | None]]:
    """The record's own headers, and those that say why it is handed on.

    Parameters
    ----------
    attempts
        How many were made, including the first.
    due_ms
        When the next one is to be made; None when none is.
    """
    said = {"connect": _connect, "spring": _spring, "kip1191": _kip1191}[dialect](origin, failure, reader, attempts)
    counted = [(ORIGINAL_TIMESTAMP, _big_integer(origin.timestamp_ms)), (ATTEMPTS, struct.pack(">i", attempts + 1))]
    if due_ms is not None:
        counted.append((BACKOFF_TIMESTAMP, _big_integer(due_ms)))
    return without(headers) + said + counted


def exception_of(headers: Headers) -> str | None:
    """The class of the exception that the headers name, whichever dialect they are of; KIP-1191 names none."""
    for name in (f"{CONNECT}exception.class.name", f"{SPRING}exception-fqcn"):
        value = last(headers, name)
        if value is not None:
            return value.decode(errors="replace")
    return None


def handler_of(headers: Headers) -> str | None:
    """What failed, where the headers name it: those of Connect do."""
    value = last(headers, f"{CONNECT}class.name")
    return None if value is None else value.decode(errors="replace")


def without(headers: Headers) -> list[tuple[str, bytes | None]]:
    """The record's own headers, as it had them before its first failure."""
    return [header for header in headers if not header[0].startswith(PREFIXES)]


def last(headers: Headers, name: str) -> bytes | None:
    """Value of the last header with this name, as Kafka's ``lastHeader``."""
    return next((value for key, value in reversed(headers) if key == name), None)


def _connect(origin: Origin, failure: Failure, reader: Reader, attempts: int) -> list[tuple[str, bytes | None]]:
    texts = {
        "connector.name": reader.group,
        "task.id": str(reader.task),
        "stage": "TASK_PUT",
        "class.name": reader.handler,
        "exception.class.name": failure.exception,
        "exception.message": failure.message,
        "exception.stacktrace": failure.trace,
    }
    return _texts(CONNECT, origin, texts)


def _spring(origin: Origin, failure: Failure, reader: Reader, attempts: int) -> list[tuple[str, bytes | None]]:
    values = {
        "original-topic": origin.topic.encode(),
        "original-partition": struct.pack(">i", origin.partition),
        "original-offset": struct.pack(">q", origin.offset),
        "original-timestamp": struct.pack(">q", origin.timestamp_ms),
        "original-timestamp-type": TIMESTAMP_TYPES[origin.timestamp_type].encode(),
        "original-consumer-group": reader.group.encode(),
        "exception-fqcn": failure.exception.encode(),
        "exception-cause-fqcn": None if failure.cause is None else failure.cause.encode(),
        "exception-message": failure.message.encode(errors="replace"),
        "exception-stacktrace": failure.trace.encode(errors="replace"),
    }
    return [(f"{SPRING}{name}", value) for name, value in values.items() if value is not None]


def _kip1191(origin: Origin, failure: Failure, reader: Reader, attempts: int) -> list[tuple[str, bytes | None]]:
    return _texts(KIP1191, origin, {"group": reader.group, "delivery.count": str(attempts), "message": failure.message})


def _texts(prefix: str, origin: Origin, more: dict[str, str]) -> list[tuple[str, bytes | None]]:
    """What :func:`origin_of` reads, and more, as UTF-8."""
    where = {"topic": origin.topic, "partition": str(origin.partition), "offset": str(origin.offset)}
    return [(f"{prefix}{name}", text.encode(errors="replace")) for name, text in (where | more).items()]


def _first_timestamp(headers: Headers, here: Origin) -> int:
    value = last(headers, ORIGINAL_TIMESTAMP)
    return here.timestamp_ms if not value or len(value) > 8 else int.from_bytes(value, signed=True)


def _big_integer(number: int) -> bytes:
    """As Java's BigInteger.toByteArray: the fewest bytes of its two's complement, big-endian."""
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, signed=True)
