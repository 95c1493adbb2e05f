"""Which schema a value is written with, where a header of its record says it: ``confluent-header``.

Confluent's serializers with ``HeaderSchemaIdSerializer`` write a byte and what follows it: 0 and an id of 4 bytes, or 1
and a GUID of 16 bytes. Those of Protobuf write message indexes behind it, as they do before a value: which message of
the schema it is, a path from the outside in.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_group.executor.values.value_contract import Malformed
from spark_kafka_group.executor.values.write_plan import varint
from spark_kafka_group.values.schema import COLUMNS

KEY_HEADER, VALUE_HEADER = "__key_schema_id", "__value_schema_id"
ID_HEADERS = {"key": KEY_HEADER, "value": VALUE_HEADER}
OF_ID, OF_GUID = 0, 1
LENGTHS = {OF_ID: 5, OF_GUID: 17}
NO_HEADER = "the record has no header with a schema id"
MOST_INDEXES = 100
MOST_INDEX_BYTES = 5
Path = tuple[int, ...]


class MessageKey(NamedTuple):
    """The id or GUID of a schema, and Confluent's message indexes in it."""

    schema: int | str
    path: Path


def header_ids(headers: pa.Array, name: str, with_indexes: bool = False) -> tuple[list[Any], dict[int, str]]:
    """The id or GUID that each row's header has, and why a row has none; `with_indexes`, a MessageKey.

    Of several headers of this name the last counts, as it does for Java's consumers.
    `headers`: the column, which may be a slice; a row without headers is null or empty.
    """
    ids: list[Any] = [None] * len(headers)
    keys, values = headers.flatten().flatten()
    is_named = pc.equal(keys, name)
    found = values.filter(is_named).dictionary_encode(null_encoding="encode")
    meaning = _message_meaning if with_indexes else _meaning
    meanings = [meaning(value) for value in found.dictionary.to_pylist()]
    rows = pc.list_parent_indices(headers).filter(is_named).to_pylist()
    for row, number in zip(rows, found.indices.to_pylist(), strict=True):
        ids[row] = meanings[number]
    if None not in ids:
        return ids, {}
    behind = ", with message indexes" if with_indexes else ""
    unread = f"its header {name} is neither byte 0 and an id nor byte 1 and a GUID{behind}"
    reasons = dict.fromkeys((row for row, one in enumerate(ids) if one is None), f"its record has no header {name}")
    return ids, reasons | {row: unread for row in rows if row in reasons}


def rows_by_ids(
    rows: Any,
    count: int,
    ids: Sequence[Any] | None,
    why_refused: Callable[[Any], str | None],
    number_of: Callable[[Any], int | None],
    run: Callable[[Any, int, int], tuple[int, list[Malformed]]],
) -> list[Malformed]:
    """Read rows whose values do not say their schema, at once those that follow each other with one id; what is
    malformed.

    `rows`: of a decoder's twin. `ids`: a row each, None where a row has none; None where no row needs one.
    `why_refused`: why no value of an id can be read. `run`: reads rows of an id; the row behind, and what is malformed.
    """
    row, malformed = 0, []
    while row < count and not rows.is_full():
        key, end = (ids[row], row + 1) if ids is not None else (None, count)
        while ids is not None and end < count and ids[end] == key:
            end += 1
        refused = NO_HEADER if ids is not None and key is None else why_refused(key)
        if refused is None:
            row, found = run(key, row, end)
            malformed += found
        while refused is not None and row < end and not rows.is_full():
            if rows.has_value(row):
                malformed.append(Malformed(row, number_of(key), "", refused))
            rows.null()
            row += 1
    return malformed


def header_of(schema_id: int | None, guid: str | None) -> bytes:
    """The header's value for a schema: its GUID, or its id where a registry does not say the GUID."""
    if guid is not None:
        return bytes([OF_GUID]) + uuid.UUID(guid).bytes
    return bytes([OF_ID]) + (schema_id or 0).to_bytes(4)


def indexes_of(path: Path) -> bytes:
    """Message indexes as they are written: what ``message_indexes`` reads."""
    return b"\0" if path == (0,) else b"".join(varint(2 * number) for number in (len(path), *path))


def with_header(headers: pa.Array | None, name: str, value: bytes, rows: pa.Array) -> pa.Array:
    """Headers that end with this one where `rows` is true, and have no other with its name."""
    kind = COLUMNS["headers"][1]
    headers = pa.nulls(len(rows), kind) if headers is None else headers.cast(kind)
    items, of_rows = headers.flatten(), pc.list_parent_indices(headers)
    others = pc.fill_null(pc.not_equal(items.field(0), name), True)
    items, of_rows = items.filter(others), of_rows.filter(others)
    more = rows.to_numpy(zero_copy_only=False)
    ends = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(np.bincount(of_rows.to_numpy(), minlength=len(rows)) + more, out=ends[1:])
    places = np.full(ends[-1], len(items))
    is_old = np.ones(len(places), bool)
    is_old[ends[1:][more] - 1] = False
    places[is_old] = np.arange(len(items))
    added = pa.array([{"key": name, "value": value}], kind.value_type)
    return pa.ListArray.from_arrays(ends, pa.concat_arrays([items, added]).take(pa.array(places)), type=kind)


def _meaning(value: bytes | None) -> int | str | None:
    """An id, or a GUID as text; None for bytes that are neither."""
    if not value or len(value) != LENGTHS.get(value[0]):
        return None
    return int.from_bytes(value[1:]) if value[0] == OF_ID else str(uuid.UUID(bytes=value[1:]))


def _message_meaning(value: bytes | None) -> MessageKey | None:
    size = LENGTHS.get(value[0], 0) if value else 0
    found = message_indexes(value[size:]) if value and size else None
    schema = _meaning(value[:size]) if value else None
    return (
        None
        if found is None or schema is None or size + found[1] != len(value or b"")
        else MessageKey(schema, found[0])
    )


def framed_message(value: bytes) -> tuple[MessageKey, int] | None:
    """What is before a value, and its length: a zero byte, an id of four bytes, and message indexes."""
    found = message_indexes(value[5 : 6 + MOST_INDEX_BYTES * (1 + MOST_INDEXES)]) if value[:1] == b"\0" else None
    if found is None:
        return None
    return MessageKey(int.from_bytes(value[1:5]), found[0]), 5 + found[1]


def message_indexes(data: bytes) -> tuple[Path, int] | None:
    """Message indexes and how many bytes they have: a count and as many numbers, zig-zag. None is the first message."""
    numbers: list[int] = []
    at = 0
    while not numbers or len(numbers) <= numbers[0]:
        number = shift = 0
        while True:
            if at == len(data) or shift == 7 * MOST_INDEX_BYTES:
                return None
            number |= (data[at] & 0x7F) << shift
            shift += 7
            at += 1
            if data[at - 1] < 0x80:
                break
        numbers.append((number >> 1) ^ -(number & 1))
        if not 0 <= numbers[0] <= MOST_INDEXES:
            return None
    return tuple(numbers[1:]) or (0,), at
