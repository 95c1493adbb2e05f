"""The columns that a reader's schema fills: flat, each before those in it, the same for all writers' schemas."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, auto

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructType

from spark_kafka_group.executor.schemas.arrow_types import arrow_type


class ColumnKind(IntEnum):
    """How a column is stored."""

    NULLS = auto()
    BOOLS = auto()
    FIXED = auto()
    """Numbers of one width."""
    BYTES = auto()
    """Bytes or text, behind 32-bit offsets."""
    STRUCT = auto()
    LIST = auto()
    MAP = auto()


@dataclass(frozen=True)
class Column:
    """A column: `width` is in bytes, `children` are indexes, `inside` the columns that are null where this is."""

    kind: ColumnKind
    type: pa.DataType
    name: str
    width: int = 0
    children: tuple[int, ...] = ()
    inside: tuple[int, ...] = ()


def columns_of(spark: DataType) -> tuple[Column, ...]:
    """The columns of a value of Spark's type `spark`; the first is the value's."""
    columns: list[Column | None] = []
    _add(columns, spark, arrow_type(spark), "")
    return tuple(column for column in columns if column is not None)


def _add(columns: list[Column | None], spark: DataType, kind: pa.DataType, name: str) -> int:
    index = len(columns)
    columns.append(None)
    inside: tuple[int, ...] = ()
    if isinstance(spark, StructType):
        children = tuple(
            _add(columns, field.dataType, kind.field(i).type, f"{name}.{field.name}".lstrip("."))
            for i, field in enumerate(spark.fields)
        )
        inside = tuple(found for child in children for found in (child, *_at(columns, child).inside))
        columns[index] = Column(ColumnKind.STRUCT, kind, name, children=children, inside=inside)
    elif isinstance(spark, ArrayType):
        items = _add(columns, spark.elementType, kind.value_type, name)
        columns[index] = Column(ColumnKind.LIST, kind, name, 4, (items,))
    elif isinstance(spark, MapType):
        keys = _add(columns, spark.keyType, kind.key_type, name)
        values = _add(columns, spark.valueType, kind.item_type, name)
        columns[index] = Column(ColumnKind.MAP, kind, name, 4, (keys, values))
    else:
        columns[index] = _simple(kind, name, spark)
    return index


def _at(columns: list[Column | None], index: int) -> Column:
    column = columns[index]
    assert column is not None
    return column


def _simple(kind: pa.DataType, name: str, spark: DataType) -> Column:
    if pa.types.is_null(kind):
        return Column(ColumnKind.NULLS, kind, name)
    if pa.types.is_boolean(kind):
        return Column(ColumnKind.BOOLS, kind, name)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return Column(ColumnKind.BYTES, kind, name, 4)
    return Column(ColumnKind.FIXED, kind, name, 16 if isinstance(spark, DecimalType) else kind.bit_width // 8)


def assembled(
    column: Column, rows: int, valid: pa.Buffer | None, buffers: list[pa.Buffer], children: list[pa.Array]
) -> pa.Array:
    """An array over buffers that a decoder has filled."""
    if column.kind == ColumnKind.NULLS:
        return pa.nulls(rows)
    if column.kind == ColumnKind.MAP:
        keys, values = children
        entries = pa.StructArray.from_arrays([keys, values], fields=[column.type.key_field, column.type.item_field])
        children = [entries]
    return pa.Array.from_buffers(column.type, rows, [valid, *buffers], children=children)


def without_entries(
    entries: int, ends: list[int], dropped: list[int], children: list[pa.Array]
) -> tuple[list[int], list[pa.Array]]:
    """The ends and children of maps without the entries `dropped`, whose keys came again in their maps."""
    kept = [True] * entries
    for entry in dropped:
        kept[entry] = False
    before, total = [0], 0
    for keep in kept:
        total += keep
        before.append(total)
    mask = pa.array(kept, pa.bool_())
    return [before[end] for end in ends], [child.filter(mask) for child in children]
