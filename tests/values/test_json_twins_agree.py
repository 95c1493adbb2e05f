"""Both twins of the JSON decoder give the same column, and the same malformed rows, for the same bytes."""

from __future__ import annotations

from random import Random

import json_samples
import pyarrow as pa
import pytest
from columns import plain

from spark_kafka_group.executor.schemas.ddl import schema_of
from spark_kafka_group.executor.values.json_decoder import TWINS

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "+05:30")
FRAMES = (b"\0\0\0\0\7", b"\0\0\0\0\7", b"\0\xff\xff\xff\xff", b"\1", b"")


def compared(seed: int, documents: int = 40) -> tuple[int, int]:
    """Rows, and how many of them the compiled twin gave up."""
    rng = Random(seed)
    spark = json_samples.root(rng)
    odd = rng.choice((0.0, 0.0, None))
    found = [
        rng.choice((None, b"")) if rng.random() < 0.03 else json_samples.document(rng, spark, odd)
        for _ in range(documents)
    ]
    framed = rng.random() < 0.1
    if framed:
        found = [value if value is None else rng.choice(FRAMES) + value for value in found]
    values = pa.array(found, pa.binary()).slice(rng.randrange(3))
    zone = rng.choice(ZONES)
    compiled, exact = (TWINS.load(name).JsonDecoder(spark, None, framed, zone) for name in ("c", "python"))
    column, malformed = compiled.decode(values)
    column.validate(full=True)
    expected, expected_malformed = exact.decode(values)
    assert column.type == expected.type == compiled.type
    assert malformed == expected_malformed
    for value, own, other in zip(values.to_pylist(), plain(column), plain(expected), strict=True):
        assert own == other, (spark.simpleString(), value)
    return len(values), compiled.given_up


@pytest.mark.parametrize("start", range(0, 60, 20))
def test_columns_of_random_schemas_and_documents_are_the_same(start: int) -> None:
    rows, given_up = (sum(each) for each in zip(*map(compared, range(start, start + 20)), strict=True))
    assert given_up < rows * 0.8  # the others are compared in earnest


@pytest.mark.soak
def test_thousands_of_random_schemas_and_documents_are_the_same() -> None:
    for seed in range(1000, 6000):
        compared(seed)


def plain_document(rng: Random) -> bytes:
    """A document that the compiled twin decodes, with all that it knows."""
    text = rng.choice(("", "plain", "h\u00e9llo \u65e5\u672c \U0001f600", 'a"b\\c/\n\t', "\u0001\u007f\u2028"))
    day = f"{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
    zone = rng.choice(("", "Z", "+02:00", "-0930", ".5"))
    fields = {
        "i": str(rng.randint(-(2**31), 2**31 - 1)),
        "l": str(rng.randint(-(2**63) + 1, 2**63 - 1)),
        "d": repr(rng.gauss(0, 1e3)),
        "f": repr(rng.uniform(-1e3, 1e3)),
        "s": json_samples.quoted(rng, text),
        "ok": rng.choice(("true", "false", "null")),
        "m": str(rng.randint(-(10**7), 10**7) / 100),
        "big": f'"{rng.randint(0, 10**9)}.{rng.randrange(10**9):09}"',
        "b": rng.choice(('""', '"aGk="', '"aGkh"', '"aA=="')),
        "day": f'"{rng.randint(1, 9999):04}-{day}{rng.choice(("", "T00:00:00Z", " "))}"',
        "t": f'"{rng.randint(1900, 2100)}-{day}T12:30:59{zone}"',
        "n": f'"2026-{day} 03:04:05.{rng.randrange(10**9)}"',
        "list": f"[{rng.randint(0, 9)}, null]",
        "map": '{"k\u00e9":{"x":1}}',
        "raw": f'{{"a": [1, true, null, "x\\n\u00e9", {{}}, {rng.randint(-(10**8), 10**9) / 100:.3f}, -0.0, 0.0010]}}',
        "skipped": '{"a":[1.5e3,"\\u00e9",{}]}',
    }
    return ("{" + ",".join(f'"{name}": {value}' for name, value in fields.items()) + "}").encode()


SCHEMA = (
    "i INT, l BIGINT, d DOUBLE, f FLOAT, s STRING, ok BOOLEAN, m DECIMAL(12,2), big DECIMAL(38,18), b BINARY, "
    "day DATE, t TIMESTAMP, n TIMESTAMP_NTZ, list ARRAY<SMALLINT>, map MAP<STRING, STRUCT<x: TINYINT>>, raw STRING"
)


@pytest.mark.parametrize("zone", ZONES)
def test_plain_documents_are_not_given_up(zone: str) -> None:
    rng = Random(zone)
    values = pa.array([plain_document(rng) for _ in range(100)], pa.binary())
    compiled, exact = (TWINS.load(name).JsonDecoder(schema_of(SCHEMA), None, False, zone) for name in ("c", "python"))
    column, malformed = compiled.decode(values)
    assert malformed == []
    assert compiled.given_up == 0
    assert plain(column) == plain(exact.decode(values)[0])


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe", "America/New_York", "Africa/Monrovia"])
def test_local_times_of_days_on_which_the_offset_changes_are_the_same_and_mostly_not_given_up(zone: str) -> None:
    days = (
        "2020-03-08",
        "2020-03-29",
        "2020-04-05",
        "2020-10-04",
        "2020-10-25",
        "2020-11-01",
        "1972-01-07",
        "1882-01-01",
    )
    texts = [f"{day} {hour:02}:{minute:02}:30" for day in days for hour in range(24) for minute in (0, 29, 44, 59)]
    values = pa.array([f'{{"t":"{text}"}}'.encode() for text in texts], pa.binary())
    compiled, exact = (
        TWINS.load(name).JsonDecoder(schema_of("t TIMESTAMP"), None, False, zone) for name in ("c", "python")
    )
    assert plain(compiled.decode(values)[0]) == plain(exact.decode(values)[0])
    assert compiled.given_up < len(values) * 0.03


MISFITS = (
    *(f'{{"{name}":"soon","s":"z"}}' for name in ("i", "l", "d", "f", "ok", "m", "day", "t", "n", "list", "map")),
    *(f'{{"{name}":{{"x":[1,"y"]}},"s":"z"}}' for name in ("i", "d", "ok", "m", "b", "day", "t", "n", "list")),
    *(f'{{"{name}":[1.5],"s":"z"}}' for name in ("i", "d", "m", "b", "day", "t", "n", "map")),
    *(f'{{"{name}":1.5}}' for name in ("i", "l", "ok", "b", "day", "t", "n", "list", "map")),
    *(f'{{"{name}":false}}' for name in ("i", "l", "d", "m", "b", "day", "t", "n", "list", "map")),
    *('{"i":2147483648}', '{"l":99999999999999999999}', '{"i":"","s":"x"}', '{"day":1}', '{"i":"x","l":"y"}'),
)


def test_a_field_that_does_not_fit_for_certain_is_not_given_up() -> None:
    values = pa.array([text.encode() for text in MISFITS], pa.binary())
    compiled, exact = (TWINS.load(name).JsonDecoder(schema_of(SCHEMA), None, False, "UTC") for name in ("c", "python"))
    column, malformed = compiled.decode(values)
    expected, expected_malformed = exact.decode(values)
    assert malformed == expected_malformed
    assert len(malformed) == len(values)
    assert plain(column) == plain(expected)
    assert compiled.given_up == 0
