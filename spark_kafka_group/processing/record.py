"""A record as handlers get it, and what a handler may return: nothing, a ProducerRecord, or several.

Records are taken out of Arrow by whole columns: a Python object a field would be slow.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from spark_kafka_group.errors import OptionError, ProcessingError
from spark_kafka_group.executor.writing.sink_columns import OutputRow
from spark_kafka_group.processing.processor_settings import Settings
from spark_kafka_group.text.foreign_text import shortened
from spark_kafka_group.values.error_headers import Headers
from spark_kafka_group.values.retry_topics import is_topic_name

if TYPE_CHECKING:
    import pyarrow as pa


class Record(NamedTuple):
    """A record, with the names of Kafka's ``ConsumerRecord``.

    Attributes
    ----------
    timestamp
        Milliseconds since the epoch; -1 where the column has null.
    timestamp_type
        0 CreateTime, 1 LogAppendTime, -1 none.
    headers
        Key and value of each, in order; keys may repeat. Empty without ``includeHeaders``.
    """

    key: bytes | None
    value: bytes | None
    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    headers: tuple[tuple[str, bytes | None], ...] = ()

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}: offset {self.offset}"


REQUIRED = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


def records_of(batch: pa.RecordBatch) -> Iterator[Record]:
    """The rows of a batch with the source's columns, in order."""
    import pyarrow as pa

    columns: list[Any] = [
        batch.column(name).to_numpy(zero_copy_only=False).tolist() for name in REQUIRED if name != "timestamp"
    ]
    microseconds = batch.column("timestamp").cast(pa.int64()).fill_null(-1000)
    milliseconds = microseconds.to_numpy(zero_copy_only=False) // 1000
    columns.insert(REQUIRED.index("timestamp"), milliseconds.tolist())
    headers = _headers(batch.column("headers")) if "headers" in batch.schema.names else repeat(())
    return map(Record._make, zip(*columns, headers, strict=False))


def _headers(column: Any) -> Iterator[tuple[tuple[str, bytes | None], ...]]:
    if column.null_count == len(column):
        return repeat(())
    fields = (column.values.field(i).to_numpy(zero_copy_only=False).tolist() for i in (0, 1))
    pairs = list(zip(*fields, strict=True))
    bounds = column.offsets.to_numpy().tolist()
    return (tuple(pairs[start:end]) for start, end in pairwise(bounds))


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A record for a topic, with the names of Kafka's ``ProducerRecord``. Its timestamp is the time when it is written.

    Attributes
    ----------
    value, key
        Text is written as UTF-8. A value of None is a tombstone. With ``valueFormat`` and ``keyFormat`` in the
        processor's ``write_options`` what the schema has: a dict for a struct.
    topic
        None for the topic of the processor's ``write_options``.
    headers
        Key and value of each, in order; keys may repeat.
    partition
        None leaves it to the key: records of one key go to one partition, the one that Java's producer chooses.
    """

    value: Any
    key: Any = None
    topic: str | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None


NO_RECORDS = (str, bytes, bytearray, dict, bool, int, float, Record)
"""Classes whose objects are never what a handler may return, though some can be iterated over."""
RETURN = "return None, a ProducerRecord, or several: a list, a tuple or a generator"
LARGEST_INT = 2**31 - 1


def materialized(result: object) -> object:
    """A result of a handler with what it has in it: a generator runs now, and what it raises is the handler's."""
    if isinstance(result, ProducerRecord):
        return (result,)
    if isinstance(result, Iterable) and not isinstance(result, NO_RECORDS):
        return tuple(result)
    return result


def rows_of(
    record: Record,
    result: object,
    settings: Settings,
    encoded: Callable[[Sequence[ProducerRecord]], Sequence[ProducerRecord]] | None = None,
) -> list[OutputRow]:
    """Rows for what the handler has returned for `record`, with what `encoded` makes of keys and values. Raises
    ProcessingError when it cannot be written: an error of the program, so it is not handed on as one of the record."""
    returned = result if isinstance(result, tuple) and not isinstance(result, Record) else (result,)
    problem = _problem(returned, settings)
    if problem is not None:
        raise ProcessingError(f"{record}: the handler {settings.handler_name} {problem}")
    try:
        made = cast("Sequence[ProducerRecord]", returned)  # as there is no problem
        return [_row(one, settings) for one in (made if encoded is None else encoded(made))]
    except UnicodeError as error:
        raise ProcessingError(
            f"{record}: the handler {settings.handler_name} returned a ProducerRecord with text that is not valid "
            f"Unicode ({error}): return bytes, or check how the text was decoded"
        ) from error


def _problem(returned: Sequence[object], settings: Settings) -> str | None:
    for one in returned:
        if not isinstance(one, ProducerRecord):
            return f"returned {shortened(repr(one))}, of type {type(one).__name__}: {RETURN}"
        if not settings.writes:
            return "returned a ProducerRecord, and the RecordProcessor has no options: give it those of the source"
        wrong = _wrong_field(one, settings)
        if wrong is not None:
            return f"returned a ProducerRecord whose {wrong}"
    return None


def _wrong_field(record: ProducerRecord, settings: Settings) -> str | None:
    """Name and value of a field that has a wrong value, with what to change."""
    topic = settings.topic if record.topic is None else record.topic
    if topic is None:
        return "topic is None: give it one, or set topic in write_options"
    if not isinstance(topic, str) or not is_topic_name(topic):
        return (
            f"topic is {shortened(repr(topic))}, which is not a topic name: letters, digits, '.', '_' and '-', at most "
            f"249 of them"
        )
    for name, value in (("value", record.value), ("key", record.key)):
        if not (value is None or isinstance(value, str | bytes) or name in settings.with_format):
            return (
                f"{name} is of type {type(value).__name__}: make it bytes, str or None, or set {name}Format in "
                f"write_options"
            )
    if not _is_headers(record.headers):
        return f"headers are {shortened(repr(record.headers))}: make them pairs of str and bytes (or None)"
    partition = record.partition
    if partition is not None and not (type(partition) is int and 0 <= partition <= LARGEST_INT):
        return f"partition is {shortened(repr(partition))}: make it a number from 0 on, or None"
    return None


def _is_headers(headers: object) -> bool:
    return isinstance(headers, Sequence) and all(
        isinstance(pair, Sequence)
        and len(pair) == 2
        and isinstance(pair[0], str)
        and (pair[1] is None or isinstance(pair[1], bytes))
        for pair in headers
    )


def _row(record: ProducerRecord, settings: Settings) -> OutputRow:
    headers: Headers = [(key, value) for key, value in record.headers]
    for key, _ in headers:
        key.encode()  # or Arrow does not take it
    topic = record.topic or settings.topic or ""
    return OutputRow(topic, _bytes(record.key), _bytes(record.value), headers, record.partition)


def _bytes(text: bytes | str | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text


def _what_is_called(handler: Callable[..., Any]) -> Callable[..., Any] | None:
    """What tells itself which arguments it takes, and None for all else. An object may pass for the function that it
    wraps, and a decorator may give a function the `__signature__` of another one, though they hand something in."""
    call = inspect.getattr_static(type(handler), "__call__", None)
    if type(handler) is functools.partial:
        inner = _what_is_called(handler.func)
        return None if inner is None else functools.partial(inner, *handler.args, **handler.keywords)
    if issubclass(type(handler), type) or type(handler) in (types.FunctionType, types.MethodType):
        call = handler
    elif type(call) is types.FunctionType:
        call = types.MethodType(call, handler)
    else:
        return None
    return None if hasattr(call, "__signature__") else call


def _check_arguments(handler: Callable[..., Any]) -> None:
    called = _what_is_called(handler)
    if called is None:
        return
    try:
        # Of what is called: a decorator that hands something in names the function in it, which takes more.
        signature = inspect.signature(called, follow_wrapped=False)
    except (TypeError, ValueError):  # of some functions in C it is not known
        return
    try:
        signature.bind(None)
    except TypeError:
        raise OptionError(f"handler is called with one argument, the Record, and takes {signature}") from None


def check_handler(handler: object) -> None:
    """Refuse what is no handler, or says itself that it returns what cannot be written. Raises OptionError."""
    if not callable(handler):
        raise OptionError(f"handler must be a function that takes a record, and is {handler!r}")
    call = handler if inspect.isroutine(handler) else getattr(handler, "__call__", handler)  # noqa: B004
    if inspect.isasyncgenfunction(call):
        raise OptionError("handler is an async generator: collect what it yields into a list, and return that")
    _check_arguments(handler)
    if hasattr(call, "__wrapped__"):  # the annotation is of the function that a decorator has, and may change
        return
    try:
        hint = typing.get_type_hints(call).get("return")
    except Exception:  # noqa: BLE001 - names that are known to type checkers alone
        return
    if isinstance(hint, type) and issubclass(hint, NO_RECORDS):
        raise OptionError(f"handler returns {hint.__name__}, by its annotation: {RETURN}")
