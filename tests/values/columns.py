"""Columns as plain values that compare: dates and timestamps as integers, maps as lists, NaN equal to NaN."""

from __future__ import annotations

import struct

import pyarrow as pa


def plain(column: pa.Array) -> list:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    valid = column.is_valid().to_pylist()
    if pa.types.is_struct(kind):
        fields = [(field.name, plain(column.field(at))) for at, field in enumerate(kind)]
        return [{name: items[row] for name, items in fields} if ok else None for row, ok in enumerate(valid)]
    if pa.types.is_map(kind):
        keys, items = plain(column.keys), plain(column.items)
        return _lists(column, valid, list(zip(keys, items, strict=True)))
    if pa.types.is_list(kind):
        return _lists(column, valid, plain(column.values))
    if pa.types.is_date(kind):
        return column.view(pa.int32()).to_pylist()
    if pa.types.is_timestamp(kind):
        return column.view(pa.int64()).to_pylist()
    if pa.types.is_string(kind):
        return column.cast(pa.binary()).to_pylist()
    found = column.to_pylist()
    if pa.types.is_floating(kind):
        return [None if item is None else "NaN" if item != item else struct.pack("d", item).hex() for item in found]
    if pa.types.is_decimal(kind):
        return [None if item is None else f"{item:f}" for item in found]
    return found


def _lists(column, valid, items):
    offsets = column.offsets.to_pylist()
    return [items[offsets[row] : offsets[row + 1]] if ok else None for row, ok in enumerate(valid)]
