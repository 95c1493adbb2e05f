"""The Protobuf decoder as a target: both twins, which must agree; and the parsers of schemas."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from typing import Any

import mutate
import pyarrow as pa
from avro_values import SIZE, as_sent, split
from twins import DisagreementError

from spark_kafka_group.executor.schemas import descriptor_sets, proto_texts, protobuf_files, protobuf_schema
from spark_kafka_group.executor.schemas.protobuf_types import ProtobufOptions, spark_type
from spark_kafka_group.executor.values.protobuf_decoder import ProtobufDecoder
from spark_kafka_group.executor.values.value_contract import Malformed

sys.path.append(str(Path(__file__).parents[1] / "values"))
from protobuf_cases import case_of, damaged

NAMES = (
    "syntax edition package import option message enum oneof map group extend extensions reserved optional required "
    "repeated default features.field_presence features.message_encoding DELIMITED IMPLICIT int32 string bytes double M "
    "google.protobuf.Timestamp = ; { } [ ] < > ( ) , - . 1 0x1F 017 1.5e3 \"proto3\" '2023' // /* */"
)
WORDS = tuple(f" {word} ".encode() for word in NAMES.split())


def generate(rng: Random) -> bytes:
    """The options, the descriptors and the name of the message, then the values, each behind its length."""
    case = case_of(rng, good=rng.random() < 0.3)
    parts = [rng.randbytes(1), case.descriptors, case.message.encode(), *case.values]
    return b"".join(SIZE.pack(len(part)) + part for part in parts if len(part) < 1 << 16)


def change(rng: Random, data: bytes, other: bytes) -> bytes:
    """Values damaged; now and then the descriptors, too, or values of another case."""
    parts, others = split(data), split(other)
    if len(parts) < 4 or rng.random() < 0.05:
        return mutate.mutate_bytes(rng, data, WORDS, other)
    values = [damaged(rng, value) if rng.random() < 0.5 else value for value in parts[3:]]
    if rng.random() < 0.2:
        values += others[3:5]
    if rng.random() < 0.1:
        parts[1] = mutate.mutate_bytes(rng, parts[1], (), others[1] if len(others) > 1 else b"")
    return b"".join(SIZE.pack(len(part) % (1 << 16)) + part for part in (*parts[:3], *values[:20]))


def decoded(data: bytes) -> None:
    """Both twins give the same column and say the same; nothing but a ValueError comes of descriptors."""
    options, descriptors, name, *values = [*split(data), b"", b"", b""]
    try:
        schema = protobuf_files.linked(descriptor_sets.files(descriptors), None, proto_texts.well_known())
        message = schema.message(name.decode("utf-8", "surrogateescape")).name
        schema = protobuf_schema.of_text(protobuf_schema.as_text(schema.only(message)))
    except ValueError as error:
        _check_sentence(error)
        return
    python, c = (_outcome(options, schema, message, values, twin) for twin in ("python", "c"))
    if python != c:
        raise DisagreementError(f"python gives {python} and c {c}")


def _outcome(
    options: bytes, schema: protobuf_schema.ProtobufSchema, message: str, values: list[bytes], twin: str
) -> tuple[Any, list[Malformed] | None]:
    flags = [bool((options or b"\0")[0] >> bit & 1) for bit in range(5)]
    try:
        made = ProtobufDecoder(
            schema, message, None, True, ProtobufOptions(*flags, max_depth=2), lambda key: None, twin
        )
    except ValueError as error:
        _check_sentence(error)
        return str(error), None
    framed = [bytes([0, 0, 0, 0, i % 2, 0]) + value for i, value in enumerate(values)]
    column, malformed = made.decode(pa.array([None, *framed, *values], pa.binary()))
    column.validate(full=True)
    return as_sent(column), malformed


def parsed(data: bytes) -> None:
    """A .proto text, and what becomes of it; a ValueError is one sentence."""
    try:
        text = data.decode("utf-8", "surrogateescape")
        schema = protobuf_files.linked([proto_texts.parsed("fuzzed", text)], None, proto_texts.well_known())
        spark_type(schema, schema.message(None).name, ProtobufOptions(max_depth=2))
    except ValueError as error:
        _check_sentence(error)


def _check_sentence(error: ValueError) -> None:
    if "\n" in str(error) or len(str(error)) > 2000:
        raise DisagreementError(f"no sentence: {error}") from None
