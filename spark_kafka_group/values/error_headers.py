"""Headers that say why a record is in a retry or dead-letter topic, in the formats of their readers.

Three dialects: ``connect`` (``DeadLetterQueueReporter``: UTF-8 texts), ``spring`` (``DeadLetterPublishingRecoverer``:
big-endian integers) and ``kip1191`` (the brokers' own dead letters of share groups: UTF-8 texts). In each dialect
Spring's ``retry_topic-`` headers count attempts. A hop replaces what the one before wrote, so headers do not grow, and
topic, partition and offset stay those of the record's first topic.

The sender of a record chooses its headers. Reading them never raises: an impossible value counts as missing. What can
be right need not be true, so callers ask who may have written it.
"""

from __future__ import annotations

import re
import struct
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spark_kafka_group.values.retry_topics import is_topic_name

CONNECT, SPRING, KIP1191, RETRY = "__connect.errors.", "kafka_dlt-", "__dlq.errors.", "retry_topic-"
ATTEMPTS = f"{RETRY}attempts"
ORIGINAL_TIMESTAMP = f"{RETRY}original-timestamp"
BACKOFF_TIMESTAMP = f"{RETRY}backoff-timestamp"
MOST_ATTEMPTS = 2**15 - 1
MOST_TEXT = 8192
"""Characters that are kept of a message, its beginning, and of a stack trace, its end: headers count for a topic's
max.message.bytes."""
MOST_NAME = 500  # the most characters of an exception's name. A longer text is not taken for a name.
DIGITS = re.compile(rb"[0-9]{1,19}")
TIMESTAMP_TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
SOURCE = "groupkafka source"  # the handler that headers name where the source itself could not read a record

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True)
class Origin:
    """The record as it was first read."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int  # -1 none, 0 CreateTime, 1 LogAppendTime


@dataclass(frozen=True)
class Failure:
    """Why a handler could not do its work, as texts: exceptions need not be picklable. `exception`, `cause`: full names
    of the exception's class, and of its cause's if it has one. `fatal`: whether no further attempt is made."""

    exception: str
    message: str
    trace: str
    cause: str | None = None
    fatal: bool = False

    @classmethod
    def from_error(cls, error: BaseException, fatal: bool = False) -> Failure:
        cause = error.__cause__ or error.__context__
        trace = "".join(traceback.format_exception(error))[-MOST_TEXT:]
        named = None if cause is None else full_name(type(cause))
        return cls(full_name(type(error)), _message_of(error)[:MOST_TEXT], trace, named, fatal)


@dataclass(frozen=True)
class Reader:
    """Who read the record."""

    group: str
    handler: str  # the function that failed, ``module:function``
    task: int


def _message_of(error: BaseException) -> str:
    """The text of an exception; a user's class may fail to give one."""
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - the record's failure counts, with or without its text
        return f"<str() of this exception failed: {full_name(type(broken))}>"


def full_name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def attempts_made(headers: Headers) -> int:
    """How often handlers have had this record before; 0 unless it is from a retry topic: only these are believed."""
    value = _only(headers, ATTEMPTS)
    attempt = int.from_bytes(value) if value is not None and len(value) in (1, 4) else 1  # a byte in older Springs
    return attempt - 1 if 1 <= attempt <= MOST_ATTEMPTS else 0


def origin_of(headers: Headers, here: Origin) -> Origin:
    """Where a record was first read, as its headers say; `here` if one is missing, occurs twice, or is no valid topic,
    or number of Kafka's types. Whether they are true, the caller decides."""
    for dialect in TABLE:
        topic = _topic(_only(headers, f"{dialect.origin}topic"))
        partition = dialect.number(_only(headers, f"{dialect.origin}partition"), 4)
        offset = dialect.number(_only(headers, f"{dialect.origin}offset"), 8)
        if topic is not None and partition is not None and offset is not None:
            kind = _timestamp_type(_only(headers, f"{dialect.origin}timestamp-type"))
            return Origin(topic, partition, offset, _first_timestamp(headers, here), kind)
    return here


def handed_on(
    headers: Headers, dialect: str, origin: Origin, failure: Failure, reader: Reader, attempts: int, due_ms: int | None
) -> list[tuple[str, bytes | None]]:
    """The record's own headers, and those that say why it is handed on. `attempts`: how many attempts were made, the
    first included. `due_ms`: when the next attempt is due; None without one."""
    said = BY_NAME[dialect].write(origin, failure, reader, attempts)
    counted = [(ORIGINAL_TIMESTAMP, _big_integer(origin.timestamp_ms)), (ATTEMPTS, struct.pack(">i", attempts + 1))]
    if due_ms is not None:
        counted.append((BACKOFF_TIMESTAMP, _big_integer(due_ms)))
    return without(headers) + said + counted


def exception_of(headers: Headers) -> str | None:
    """The class of the exception that the headers name, whichever dialect they are of; KIP-1191 names none."""
    for dialect in TABLE:
        text = _text(last(headers, f"{dialect.prefix}{dialect.exception}")) if dialect.exception else None
        if text and len(text) <= MOST_NAME and text.isprintable():
            return text
    return None


def handler_of(headers: Headers) -> str | None:
    """The handler that failed, where the headers name it, as those of Connect do."""
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
        "exception-fqcn": failure.exception.encode(errors="replace"),
        "exception-cause-fqcn": None if failure.cause is None else failure.cause.encode(errors="replace"),
        "exception-message": failure.message.encode(errors="replace"),
        "exception-stacktrace": failure.trace.encode(errors="replace"),
    }
    return [(f"{SPRING}{name}", value) for name, value in values.items() if value is not None]


def _kip1191(origin: Origin, failure: Failure, reader: Reader, attempts: int) -> list[tuple[str, bytes | None]]:
    return _texts(KIP1191, origin, {"group": reader.group, "delivery.count": str(attempts), "message": failure.message})


def _texts(prefix: str, origin: Origin, more: dict[str, str]) -> list[tuple[str, bytes | None]]:
    """The headers that :func:`origin_of` reads, and more, as UTF-8."""
    first = {"topic": origin.topic, "partition": str(origin.partition), "offset": str(origin.offset)}
    return [(f"{prefix}{name}", text.encode(errors="replace")) for name, text in (first | more).items()]


def _only(headers: Headers, name: str) -> bytes | None:
    """Value of the header with this name; None where there are several, as the sender may have added one."""
    values = [value for key, value in headers if key == name]
    return values[0] if len(values) == 1 else None


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _topic(value: bytes | None) -> str | None:
    text = _text(value)
    return text if text is not None and is_topic_name(text) else None


def _of_digits(value: bytes | None, size: int) -> int | None:
    """A number from 0 on in ASCII digits that fits an integer of so many bytes."""
    number = int(value) if value is not None and DIGITS.fullmatch(value) else -1
    return number if 0 <= number < 1 << (8 * size - 1) else None


def _of_bytes(value: bytes | None, size: int) -> int | None:
    """A number from 0 on as a big-endian integer of so many bytes."""
    number = int.from_bytes(value, signed=True) if value is not None and len(value) == size else -1
    return number if number >= 0 else None


def _timestamp_type(value: bytes | None) -> int:
    return next((number for number, name in TIMESTAMP_TYPES.items() if name.encode() == value), 0)


def _first_timestamp(headers: Headers, here: Origin) -> int:
    value = last(headers, ORIGINAL_TIMESTAMP)
    return here.timestamp_ms if not value or len(value) > 8 else int.from_bytes(value, signed=True)


def _big_integer(number: int) -> bytes:
    """As Java's BigInteger.toByteArray: the fewest bytes of its two's complement, big-endian."""
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, signed=True)


@dataclass(frozen=True)
class Dialect:
    """The headers that one kind of reader expects."""

    name: str
    prefix: str  # of all its headers. No other dialect has it.
    # Beginning of the headers with ``topic``, ``partition``, ``offset`` and ``timestamp-type`` of the first record
    origin: str
    # Reads partition and offset, as an integer of so many bytes; None for bytes that cannot be one
    number: Callable[[bytes | None, int], int | None]
    write: Callable[[Origin, Failure, Reader, int], list[tuple[str, bytes | None]]]
    # The name, behind `prefix`, of the header with the exception's class; None where there is none
    exception: str | None = None


TABLE = (
    Dialect("connect", CONNECT, CONNECT, _of_digits, _connect, "exception.class.name"),
    Dialect("kip1191", KIP1191, KIP1191, _of_digits, _kip1191),
    Dialect("spring", SPRING, f"{SPRING}original-", _of_bytes, _spring, "exception-fqcn"),
)
"""The dialects, in the order in which a record's headers are tried."""
BY_NAME = {dialect.name: dialect for dialect in TABLE}
DIALECTS = tuple(BY_NAME)
PREFIXES = (*(dialect.prefix for dialect in TABLE), RETRY)
