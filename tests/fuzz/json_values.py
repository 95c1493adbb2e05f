"""JSON values on both twins of the decoder, and schemas as text."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from random import Random

import mutate
import pyarrow as pa
from twins import DisagreementError

sys.path.insert(0, str(Path(__file__).parents[1] / "values"))  # first: it makes the next two known

import json_samples
from columns import plain

from spark_kafka_group.executor.schemas.ddl import DdlError, schema_of
from spark_kafka_group.executor.values.json_decoder import TWINS
from spark_kafka_group.executor.values.value_contract import ValueDecoder

SCHEMAS = 24
SEPARATOR = b"\x1e"
ZONES = ("UTC", "Europe/Berlin", "-03:30")
WORDS = tuple(
    text.encode("utf-8", "surrogatepass")
    for text in (*json_samples.ODD_VALUES, *json_samples.WORDS, *json_samples.INTEGERS, *json_samples.FLOATS)
)
DDL_WORDS = (
    *(b"STRUCT<", b"ARRAY<INT>", b"MAP<STRING,", b"DECIMAL(10,2)", b" NOT NULL", b" COMMENT 'x'", b"`a`", b", ", b">"),
    *(b":", b" INTERVAL DAY", b" TIMESTAMP", b" TIME(3)", b"--", b"/*", b"*/", b"\n"),
)


@cache
def decoders(schema: int) -> tuple[ValueDecoder, ValueDecoder]:
    """Both twins of one of the schemas."""
    kind = json_samples.root(Random(schema))
    made = [TWINS.load(name).JsonDecoder(kind, None, schema % 8 == 7, ZONES[schema % 3]) for name in ("c", "python")]
    return made[0], made[1]


def generate(rng: Random) -> bytes:
    schema = rng.randrange(SCHEMAS)
    kind = json_samples.root(Random(schema))
    documents = [json_samples.document(rng, kind) for _ in range(rng.randint(1, 6))]
    frame = b"\0\0\0\0\1" if schema % 8 == 7 else b""
    return bytes((schema,)) + SEPARATOR.join(frame + document for document in documents)


def change(rng: Random, data: bytes, other: bytes) -> bytes:
    """The schema stays, mostly."""
    if rng.random() < 0.5:
        return data[:1] + json_samples.damaged(rng, data[1:])
    return data[:1] + mutate.mutate_bytes(rng, data[1:], WORDS, other[1:])


def decoded(data: bytes) -> None:
    """The first byte is the schema; documents are separated."""
    if not data:
        return
    compiled, exact = decoders(data[0] % SCHEMAS)
    values = pa.array(data[1:].split(SEPARATOR), pa.binary())
    column, malformed = compiled.decode(values)
    column.validate(full=True)
    expected, expected_malformed = exact.decode(values)
    if plain(column) != plain(expected) or malformed != expected_malformed:
        raise DisagreementError(f"schema {data[0] % SCHEMAS}: the twins give other columns, or other malformed rows")


def parsed(data: bytes) -> None:
    """A schema is read, and what is read comes back from its JSON; else it is refused in words."""
    try:
        found = schema_of(data.decode("utf-8", "replace"))
    except DdlError:
        return
    if schema_of(found.json()) != found:
        raise DisagreementError("a schema does not come back from its JSON")
