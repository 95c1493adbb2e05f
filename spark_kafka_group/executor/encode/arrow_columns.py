"""Arrow arrays as the columns that the encoder reads."""

from __future__ import annotations

import pyarrow as pa

from spark_kafka_group.executor.encode.encoder_contract import BinaryColumn, HeadersColumn

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def binary_column(array: pa.Array) -> BinaryColumn | None:
    """A column of strings or bytes, large ones and views too; None for one of Arrow's type null.

    Raises
    ------
    pyarrow.ArrowException
        When the type has no bytes, or they are more than 32-bit offsets reach.
    """
    kind = array.type
    if pa.types.is_null(kind):
        return None
    if not (pa.types.is_binary(kind) or pa.types.is_string(kind)):
        array = array.cast(pa.binary())
    validity, ends, data = map(_bytes, array.buffers())
    return BinaryColumn(array.offset, validity, ends, data)


def headers_column(array: pa.Array) -> HeadersColumn | None:
    """A column of lists of a struct whose first field is the key and the second the value; None for one of type null.

    Raises
    ------
    pyarrow.ArrowException
        When the type is another one.
    """
    kind = array.type
    if pa.types.is_null(kind):
        return None
    if not pa.types.is_list(kind):
        array = array.cast(_HEADERS)
    validity, ends = map(_bytes, array.buffers()[:2])
    structs = array.values
    keys, values = (binary_column(structs.field(place)) or _nulls(len(structs)) for place in range(2))
    return HeadersColumn(
        array.offset, validity, ends, len(structs), structs.offset, _bytes(structs.buffers()[0]), keys, values
    )


def _nulls(count: int) -> BinaryColumn:
    return BinaryColumn(0, bytes((count + 7) // 8), bytes(4 * (count + 1)), None)


def _bytes(buffer: pa.Buffer | None) -> memoryview | None:
    # Arrow's buffers call themselves signed bytes.
    return None if buffer is None else memoryview(buffer).cast("B")
