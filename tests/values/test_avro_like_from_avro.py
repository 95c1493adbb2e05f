"""Spark's from_avro, in real Spark, is the judge of schemas, rows, and what is malformed.

Random schemas have no arrays of nulls or of empty records here: the lists that toArrow() writes are too short for them.
"""

from __future__ import annotations

import decimal
import json
import os
from random import Random

import pyarrow as pa
import pytest
from avro_cases import Case, case_of, varint
from from_avro import plain, read, with_avro

from spark_kafka_group.executor.schemas.arrow_types import nullable
from spark_kafka_group.executor.schemas.avro_schema import parse
from spark_kafka_group.executor.schemas.avro_types import spark_type
from spark_kafka_group.executor.values.avro_decoder import AvroDecoder
from spark_kafka_group.executor.values.avro_instructions import REASONS, Problem

SEED = int(os.environ.get("AVRO_SEED", "1"))
EACH = int(os.environ.get("AVRO_VALUES", "30"))
"""Of each of 2,000 schemas in `make soak`."""
AT_ONCE = 50
ON_PURPOSE = {REASONS[Problem.NO_TIME], REASONS[Problem.ITEMS]}
LATER = {REASONS[Problem.FAR_TIME], REASONS[Problem.DIGITS], REASONS[Problem.EMPTY_DECIMAL]}
"""What from_avro finds in a map only after entries whose keys come again are gone."""


@pytest.fixture(scope="module")
def avro(spark):
    return with_avro(spark)


def ours(case):
    made = AvroDecoder(case.reader, None, False, {1: case.writer}.__getitem__)
    array, malformed = made.decode(pa.array(case.values, pa.binary()), [1] * len(case.values))
    return plain(array), malformed


def check(avro, cases):
    """Same types and same rows; a row of nulls is from_avro's malformed value, as `mark` is never null.

    DIFFERENCES has what is malformed on purpose.
    """
    schema, columns = read(avro, cases, "PERMISSIVE")
    for case, field, column in zip(cases, schema.fields, columns, strict=True):
        assert field.dataType == nullable(spark_type(parse(case.reader))), case
        rows, malformed = ours(case)
        reasons = ON_PURPOSE | LATER if '"map"' in case.reader else ON_PURPOSE
        on_purpose = {found.row for found in malformed if found.reason in reasons}
        theirs = [None if row["mark"] is None or i in on_purpose else row for i, row in enumerate(plain(column))]
        theirs = [own if repeats_a_key(row) else row for own, row in zip(rows, theirs, strict=True)]
        assert rows == theirs, (case, malformed)


def repeats_a_key(value):
    """Whether a map in a value has two keys that are one text, as both have bytes that are no UTF-8."""
    if isinstance(value, dict):
        return any(map(repeats_a_key, value.values()))
    if not isinstance(value, list):
        return False
    keys = [item[0] for item in value if isinstance(item, tuple)]
    return len(set(keys)) < len(keys) or any(repeats_a_key(i[1] if isinstance(i, tuple) else i) for i in value)


def test_random_values_are_those_of_from_avro(avro):
    check(avro, [case_of(Random(f"{SEED} {i}"), good=i % 2 == 0, empty=False) for i in range(AT_ONCE)])


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("part", range(20))
def test_thousands_of_random_values_are_those_of_from_avro(avro, part):
    check(
        avro,
        [case_of(Random(f"{SEED} {part} {i}"), values=EACH, good=i % 2 == 0, empty=False) for i in range(2 * AT_ONCE)],
    )


def test_good_values_are_no_error_of_from_avro_either(avro):
    cases = [case_of(Random(f"{SEED} good {i}"), empty=False) for i in range(AT_ONCE)]
    good = [case for case in cases if not ours(case)[1]]
    assert len(good) > AT_ONCE / 3
    schema, columns = read(avro, good, "FAILFAST")
    for case, field, column in zip(good, schema.fields, columns, strict=True):
        assert field.dataType == spark_type(parse(case.reader)), case
        assert plain(column) == ours(case)[0], case


INT = varint(7)
OPTIONAL = {"name": "b", "type": [{"type": "array", "items": "int"}, "null"], "default": []}
ROOT = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
SAME_BUT_CASE = {**ROOT, "fields": [{"name": "a", "type": "int"}, {"name": "A", "type": "int"}]}
OF_NO_BYTES = {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}
DECIMALS = {"type": "map", "values": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}}
TIME = {"type": "long", "logicalType": "time-micros"}
DIFFERENCES = {
    # what differs: the writer's schema, the reader's, a value, what it is here, what from_avro has (None: malformed)
    "a null at the top is null": (["null", "int"], ["null", "int"], varint(0), None, 0),
    "a record at the top that may be null is read": (["null", ROOT], ["null", ROOT], varint(0), None, {"a": None}),
    "a union at the top is read": (
        ["int", "string"],
        ["int", "string"],
        varint(0) + INT,
        {"member0": 7, "member1": None},
        {"member0": None, "member1": None},
    ),
    "fields that differ in case are read": (
        SAME_BUT_CASE,
        SAME_BUT_CASE,
        INT + INT,
        {"a": 7, "A": 7},
        {"a": None, "A": None},
    ),
    "an empty array is the default of a field that may be null": (
        ROOT,
        {**ROOT, "fields": [*ROOT["fields"], OPTIONAL]},
        INT,
        {"a": 7, "b": []},
        {"a": None, "b": None},
    ),
    "many items without bytes are malformed": (
        OF_NO_BYTES,
        OF_NO_BYTES,
        varint(1000) + varint(0),
        None,
        [b""] * 1000,
    ),
    "an entry that does not fit is malformed, though its key comes again": (
        DECIMALS,
        DECIMALS,
        varint(2) + b"\x02k" + b"\x06\0\x27\x10" + b"\x02k" + b"\x02\x01" + varint(0),
        None,
        [(b"k", decimal.Decimal("0.01"))],
    ),
    "a time that is none of a day is malformed": (TIME, TIME, varint(-1), None, -1000),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_it_differs_from_from_avro(avro, name):
    writer, reader, value, here, there = DIFFERENCES[name]
    case = Case(json.dumps(writer), json.dumps(reader), (value,))
    assert ours(case)[0] == [here]
    assert plain(read(avro, [case], "PERMISSIVE")[1][0]) == [there]
