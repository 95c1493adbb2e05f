"""The Avro decoder as a target: both twins, which must agree; and the parser of schemas."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from random import Random
from typing import Any

import mutate
import pyarrow as pa
from twins import DisagreementError

from spark_kafka_group.executor.schemas.arrow_types import arrow_type
from spark_kafka_group.executor.schemas.avro_schema import parse
from spark_kafka_group.executor.schemas.avro_types import spark_type
from spark_kafka_group.executor.values.avro_decoder import AvroDecoder
from spark_kafka_group.executor.values.value_contract import Malformed

sys.path.append(str(Path(__file__).parents[1] / "values"))
from avro_cases import Case, case_of, damaged

SIZE = struct.Struct(">H")
NAMES = (
    "type name namespace fields items values symbols size default aliases logicalType record enum fixed array map null "
    "boolean int long float double bytes string decimal precision scale uuid duration timestamp-millis R1 Root a.b"
)
WORDS = tuple(json.dumps(word).encode() for word in (*NAMES.split(), [], {}, None, -1))


def generate(rng: Random) -> bytes:
    return written(case_of(rng, good=rng.random() < 0.3))


def written(case: Case) -> bytes:
    """The schemas, then the values, each behind its length."""
    parts = [case.writer.encode(), case.reader.encode(), *case.values]
    return b"".join(SIZE.pack(len(part)) + part for part in parts if len(part) < 1 << 16)


def change(rng: Random, data: bytes, other: bytes) -> bytes:
    """Values damaged; now and then a schema, too, or values of another case."""
    parts, others = split(data), split(other)
    if len(parts) < 3 or rng.random() < 0.05:
        return mutate.mutate_bytes(rng, data, WORDS, other)
    values = [damaged(rng, value) if rng.random() < 0.5 else value for value in parts[2:]]
    if rng.random() < 0.2:
        values += others[2:4]
    if rng.random() < 0.2:
        i = rng.randrange(2)
        parts[i] = mutate.mutate_bytes(rng, parts[i], WORDS, others[0] if others else b"")
    return b"".join(SIZE.pack(len(part) % (1 << 16)) + part for part in (*parts[:2], *values[:20]))


def split(data: bytes) -> list[bytes]:
    parts, at = [], 0
    while at + SIZE.size <= len(data):
        (size,) = SIZE.unpack_from(data, at)
        parts.append(data[at + SIZE.size : at + SIZE.size + size])
        at += SIZE.size + size
    return parts


def decoded(data: bytes) -> None:
    """Both twins give the same column and say the same; nothing but a ValueError comes of a reader's schema."""
    writer, reader, *values = [*split(data), b"", b""]
    texts = [text.decode("utf-8", "surrogateescape") for text in (writer, reader)]
    python, c = (_outcome(texts, values, twin) for twin in ("python", "c"))
    if python != c:
        raise DisagreementError(f"python gives {python} and c {c}")


def _outcome(texts: list[str], values: list[bytes], twin: str) -> tuple[Any, list[Malformed] | None]:
    writer, reader = texts
    try:
        made = AvroDecoder(reader, None, True, lambda schema_id: writer, twin)
    except ValueError as error:
        return str(error), None
    framed = [bytes([0, 0, 0, 0, i % 2]) + value for i, value in enumerate(values)]
    column, malformed = made.decode(pa.array([None, *framed, *values], pa.binary()))
    column.validate(full=True)
    return as_sent(column), malformed


def as_sent(column: pa.Array) -> bytes:
    """The column as Spark gets it, in which NaN is itself."""
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([pa.concat_arrays([column])], names=["v"])
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


def parsed(data: bytes) -> None:
    """A schema, and what becomes of it; a ValueError is one sentence."""
    try:
        arrow_type(spark_type(parse(data.decode("utf-8", "surrogateescape"))))
    except ValueError as error:
        if "\n" in str(error) or len(str(error)) > 500:
            raise DisagreementError(f"no sentence: {error}") from None
