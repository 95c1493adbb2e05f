"""Decoders of cases, and columns whose times are whole numbers."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from protobuf_cases import Case

from spark_kafka_group.executor.schemas import descriptor_sets, protobuf_files
from spark_kafka_group.executor.schemas.protobuf_schema import ProtobufSchema
from spark_kafka_group.executor.schemas.protobuf_types import ProtobufOptions
from spark_kafka_group.executor.values.protobuf_decoder import ProtobufDecoder

OPTIONS = st.builds(
    ProtobufOptions,
    enums_as_ints=st.booleans(),
    emit_defaults=st.booleans(),
    upcast_unsigned=st.booleans(),
    unwrap=st.booleans(),
)


def schema_of(descriptors: bytes) -> ProtobufSchema:
    return protobuf_files.linked(descriptor_sets.files(descriptors))


def decoder_of(
    case: Case, options: ProtobufOptions, decoder: str, wanted: tuple[str, ...] | None = None, framed: bool = False
) -> ProtobufDecoder:
    def check(key: Any) -> None:
        if key.path != (0,):
            raise LookupError(f"no message {key.path}")

    return ProtobufDecoder(schema_of(case.descriptors), case.message, wanted, framed, options, check, decoder)


def rows_of(column: pa.Array) -> list[Any]:
    """A column as Python values: maps as dictionaries, times as microseconds."""
    kind, valid = column.type, column.is_valid().to_pylist()
    if pa.types.is_struct(kind):
        fields = [(field.name, rows_of(column.field(at))) for at, field in enumerate(kind)]
        return [{name: items[row] for name, items in fields} if ok else None for row, ok in enumerate(valid)]
    if pa.types.is_map(kind):
        items = list(zip(rows_of(column.keys), rows_of(column.items), strict=True))
        return [None if part is None else dict(part) for part in _parts(column, valid, items)]
    if pa.types.is_list(kind):
        return _parts(column, valid, rows_of(column.values))
    if pa.types.is_temporal(kind):
        return column.view(pa.int64()).to_pylist()
    if pa.types.is_decimal(kind):
        return [None if value is None else int(value) for value in column.to_pylist()]
    return column.to_pylist()


def _parts(column: pa.Array, valid: list[bool], items: list[Any]) -> list[Any]:
    ends = column.offsets.to_pylist()
    return [items[ends[row] : ends[row + 1]] if ok else None for row, ok in enumerate(valid)]
