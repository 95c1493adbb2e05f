"""The encoder of values as a target: both twins write the same of a column, whatever is in its buffers."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import mutate
import pyarrow as pa
from avro_values import as_sent
from twins import DisagreementError

from spark_kafka_group.executor.schemas.protobuf_schema import as_text
from spark_kafka_group.executor.schemas.protobuf_types import ProtobufOptions, spark_type
from spark_kafka_group.executor.values.avro_plan import avro_plan
from spark_kafka_group.executor.values.json_plan import json_plan
from spark_kafka_group.executor.values.protobuf_plan import protobuf_plan
from spark_kafka_group.executor.values.value_encoder import TWINS
from spark_kafka_group.executor.values.write_plan import WritePlan, bound, reason

sys.path.append(str(Path(__file__).parents[1] / "values"))
import protobuf_cases
from protobuf_decoding import decoder_of, schema_of
from written_samples import FIELDS_OF_JSON, Making, column, struct_of

CASE = struct.Struct(">HBB")  # number of the plan, and the slice of the column: rows left out, and rows
NODE = struct.Struct(">HB")  # values of an array, and those before it
SIZE = struct.Struct(">H")
NO_BUFFER = 0xFFFF
ROWS = 6
ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "+05:45")
INTEGERS = tuple(struct.pack("<i", value) for value in (-(2**31), -1, 0, 1, 2, 8, 255, 2**31 - 1))
LONGS = tuple(struct.pack("<q", value) for value in (-(2**63), -(2**53), -1, 10**18, 2**62, 2**63 - 1))
WORDS = (*INTEGERS, *LONGS, b"\xff" * 16, b"\0" * 16, b"\x80", b"\xed\xa0\x80", b'"\\\x1f')


@lru_cache(maxsize=512)
def case_of(number: int) -> tuple[WritePlan, pa.Array]:
    """A plan, and a column that it takes: JSON of even numbers, Avro of odd ones, Protobuf of every eighth."""
    rng = Random(number)
    if number % 8 == 1:
        options, messages = ProtobufOptions(*(rng.random() < 0.5 for _ in range(4))), protobuf_cases.case_of(rng, ROWS)
        schema = schema_of(messages.descriptors)
        plan = protobuf_plan(spark_type(schema, messages.message, options), as_text(schema.only(messages.message)))
        return plan, decoder_of(messages, options, "auto").decode(pa.array(messages.values, pa.binary()))[0]
    if number % 2 == 0:
        spark = struct_of(rng, 3, FIELDS_OF_JSON, of_avro=False)
        return json_plan(spark, ZONES[number // 2 % len(ZONES)]), column(rng, spark, ROWS)
    case = Making(rng, ROWS, most=3).record(3, ROWS, nullable=True)
    return avro_plan(case.type, json.dumps(case.schema)), case.column


def generate(rng: Random) -> bytes:
    number, skipped = rng.randrange(1 << 16), rng.choice((0, 0, rng.randrange(ROWS)))
    return _joined([CASE.pack(number, skipped, ROWS - skipped), *_packed(case_of(number)[1])])


def change(rng: Random, data: bytes, other: bytes) -> bytes:
    """Buffers damaged, most of them as long as before; now and then numbers of values, or all of it."""
    parts, others = split(data), split(other)
    if len(parts) < 2 or rng.random() < 0.05:
        return mutate.mutate_bytes(rng, data, WORDS, other)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(0 if rng.random() < 0.1 else 1, len(parts))
        part = parts[at]
        if part is not None and len(part) == NODE.size and rng.random() < 0.9:  # a number of values, most probably
            continue
        if part and rng.random() < 0.7:
            word = rng.choice(WORDS)
            begin = rng.randrange(len(part)) // len(word) * len(word)
            parts[at] = (part[:begin] + word + part[begin + len(word) :])[: len(part)]
        elif rng.random() < 0.1:
            parts[at] = None if part is not None and rng.random() < 0.5 else rng.choice(others or parts)
        elif part is not None:
            parts[at] = mutate.mutate_bytes(rng, part, WORDS, b"")
    return _joined(parts)


def split(data: bytes) -> list[bytes | None]:
    """Parts behind their sizes; None for a buffer that is not there."""
    parts: list[bytes | None] = []
    at = 0
    while at + SIZE.size <= len(data):
        (size,) = SIZE.unpack_from(data, at)
        at += SIZE.size
        parts.append(None if size == NO_BUFFER else data[at : at + size])
        at += 0 if size == NO_BUFFER else size
    return parts


def _joined(parts: list[bytes | None]) -> bytes:
    return b"".join(
        SIZE.pack(NO_BUFFER) if part is None else SIZE.pack(min(len(part), NO_BUFFER - 1)) + part[: NO_BUFFER - 1]
        for part in parts
    )


def _packed(array: pa.Array) -> Iterator[bytes | None]:
    """The number of its values, its buffers without what is behind them, and the same of the arrays in it."""
    kind, rows = array.type, len(array)
    yield NODE.pack(rows, 0)
    sizes = [(rows + 7) // 8]
    if pa.types.is_boolean(kind):
        sizes.append((rows + 7) // 8)
    elif pa.types.is_primitive(kind) or pa.types.is_decimal128(kind):
        sizes.append(rows * kind.bit_width // 8)
    elif not pa.types.is_struct(kind):
        sizes += [4 * (rows + 1), NO_BUFFER - 1]
    for buffer, size in zip(array.buffers(), sizes[: kind.num_buffers], strict=False):
        yield None if buffer is None else buffer.to_pybytes()[:size]
    for child in _children(array):
        yield from _packed(child)


def _children(array: pa.Array) -> list[pa.Array]:
    if pa.types.is_struct(array.type):
        return [array.field(i) for i in range(array.type.num_fields)]
    nested = pa.types.is_list(array.type) or pa.types.is_map(array.type)
    return [array.values] if nested else []


def _unpacked(kind: pa.DataType, parts: Iterator[bytes | None], nulls: bool = True) -> pa.Array:
    """An array of buffers that are as long as they are. Raises pa.ArrowInvalid where Arrow refuses them. It ends the
    process for a null key of a map."""
    rows, first = NODE.unpack((next(parts, None) or b"").ljust(NODE.size, b"\0")[: NODE.size])
    found = [next(parts, None) for _ in range(kind.num_buffers)]
    buffers = [None if part is None else pa.py_buffer(part) for part in (found if nulls else [None, *found[1:]])]
    of_keys = pa.types.is_map(kind) or not nulls
    children = [_unpacked(kind.field(i).type, parts, i > 0 or not of_keys) for i in range(kind.num_fields)]
    return pa.Array.from_buffers(kind, rows, buffers, offset=first, children=children or None)


def written(data: bytes) -> None:
    """The twins write the same, or name the same row that does not fit; what Arrow refuses is not asked for."""
    case, *parts = [*split(data), b""]
    number, skipped, rows = CASE.unpack((case or b"").ljust(CASE.size, b"\0")[: CASE.size])
    plan, usual = case_of(number)
    try:
        array = _unpacked(usual.type, iter(parts)).slice(skipped, rows)
        arrays = bound(plan, array)
    except (ValueError, pa.ArrowException):
        return
    python, c = (_outcome(plan, arrays, len(array), twin) for twin in ("python", "c"))
    if python != c:
        raise DisagreementError(f"plan {number}: python writes {python} and c {c}")


def _outcome(plan: WritePlan, arrays: list[pa.Array | None], rows: int, twin: str) -> Any:
    made, unfit = TWINS.load(twin).ColumnEncoder(plan).encode(arrays, rows, b"\0\0\0\0\1")
    if unfit is not None:
        return unfit, reason(plan, arrays, unfit)
    made.validate(full=True)
    return as_sent(made)
