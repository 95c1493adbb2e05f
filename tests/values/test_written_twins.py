"""Both twins of the encoder write the same bytes, and refuse the same rows, for the same columns."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
)
from written_samples import FIELDS_OF_JSON, Making, column, damaged, struct_of

from spark_kafka_group.executor.values.avro_plan import avro_plan
from spark_kafka_group.executor.values.json_plan import json_plan
from spark_kafka_group.executor.values.value_encoder import TWINS
from spark_kafka_group.executor.values.write_plan import bound, reason

ROWS = 12
ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "+05:45", "Asia/Kolkata")


def written(plan, array, twin, prefix=b""):
    made, unfit = TWINS.load(twin).ColumnEncoder(plan).encode(bound(plan, array), len(array), prefix)
    if made is not None:
        made.validate(full=True)
    return None if made is None else made.to_pylist(), unfit


def same(plan, array, prefix=b""):
    found = written(plan, array, "python", prefix)
    assert found == written(plan, array, "c", prefix)
    return found


@given(st.randoms(use_true_random=True), st.sampled_from(ZONES), st.integers(0, 3))
def test_json_of_random_columns_and_of_slices_of_them(rng, zone, skipped):
    spark = struct_of(rng, 3, FIELDS_OF_JSON, of_avro=False)
    plan, array = json_plan(spark, zone), column(rng, spark, ROWS)
    whole, unfit = same(plan, array)
    assert unfit is None
    part, _ = same(plan, array.slice(skipped, 5), b"\0\0\0\0\1")
    assert part == [value and b"\0\0\0\0\1" + value for value in whole[skipped : skipped + 5]]
    assert all(value is None or isinstance(json.loads(value), dict) for value in whole)


@given(st.randoms(use_true_random=True), st.integers(0, 3))
def test_avro_of_random_columns_and_of_slices_of_them(rng, skipped):
    case = Making(rng, ROWS, most=3).record(3, ROWS, nullable=True)
    plan = avro_plan(case.type, json.dumps(case.schema))
    whole, unfit = same(plan, case.column)
    assert unfit is None
    part, _ = same(plan, case.column.slice(skipped, 5))
    assert part == whole[skipped : skipped + 5]


@given(st.lists(st.floats(width=32) | st.floats(width=32, min_value=-1e7, max_value=1e7), max_size=20))
def test_floats_of_32_bits_as_text(values):
    spark = ArrayType(StructType([StructField("f", IntegerType())]))
    spark = StructType([StructField("f", _float())])
    array = pa.StructArray.from_arrays([pa.array(values, pa.float32())], names=["f"])
    for value, text in zip(values, same(json_plan(spark, "UTC"), array)[0], strict=True):
        back = float(json.loads(text)["f"])
        assert pa.scalar(back).cast(pa.float32(), safe=False).as_py() == value or value != value


@given(st.lists(st.floats() | st.decimals(-(10**7), 10**7, places=3).map(float), max_size=20))
def test_doubles_as_text_tell_the_same_number(values):
    spark = StructType([StructField("f", _double())])
    array = pa.StructArray.from_arrays([pa.array(values, pa.float64())], names=["f"])
    for value, text in zip(values, same(json_plan(spark, "UTC"), array)[0], strict=True):
        assert float(json.loads(text)["f"]) == value or value != value


def _float():
    from pyspark.sql.types import FloatType

    return FloatType()


def _double():
    from pyspark.sql.types import DoubleType

    return DoubleType()


def avro(kind, *more):
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}, *more]})


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
ENUM = {"type": "enum", "name": "Color", "symbols": ["RED", "GREEN"]}
FIXED = {"type": "fixed", "name": "Four", "size": 4}
UNFIT = {
    # Spark's type, the schema's, values, the row that does not fit, why, and its field if that is not f
    "a null": (IntegerType(), "int", [1, None], 1, "it is null, and the schema has int here, which takes no null"),
    "a large integer": (LongType(), "int", [2**31 - 1, 2**31], 1, "2147483648 is out of range for the schema's int"),
    "a small integer": (
        LongType(), "int", [-(2**31), -(2**31) - 1], 1, "-2147483649 is out of range for the schema's int"
    ),
    "a symbol": (StringType(), ENUM, ["RED", "red"], 1, "'red' is no symbol of the schema's enum Color"),
    "a length": (BinaryType(), FIXED, [b"1234", b"123"], 1, "it has 3 bytes, and the schema's fixed Four has 4"),
    "digits": (
        DecimalType(6, 2), DECIMAL, ["99.99", "100.00"], 1,
        "100.00 has more digits than the schema's bytes decimal(4, 2)"
    ),
    "digits behind zeros": (
        DecimalType(4, 0), DECIMAL, ["99", "-100"], 1, "-100 has more digits than the schema's bytes decimal(4, 2)"
    ),
    "an item": (
        ArrayType(IntegerType()), {"type": "array", "items": "int"}, [[1], [1, None]], 1,
        "it is null, and the schema has int here, which takes no null", "f.element",
    ),
    "an entry": (
        MapType(StringType(), StringType()), {"type": "map", "values": ENUM}, [[("k", "RED")], [("k", "x")]], 1,
        "'x' is no symbol of the schema's enum Color", "f.value",
    ),
    "two members": (
        StructType([StructField("member0", IntegerType()), StructField("member1", StringType())]), ["int", "string"],
        [(1, None), (None, "x"), (1, "x")], 2, "several members of the struct are set, and a union has one of them",
    ),
    "no member": (
        StructType([StructField("member0", IntegerType()), StructField("member1", StringType())]), ["int", "string"],
        [(1, None), (None, None)], 1, "no member of the struct is set, and the schema's union takes no null",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNFIT)
def test_a_row_that_does_not_fit_is_named(name):
    from decimal import Decimal

    from spark_kafka_group.executor.schemas.arrow_types import arrow_type

    inner, kind, values, row, why, *field = UNFIT[name]
    spark = StructType([StructField("f", inner)])
    if isinstance(inner, DecimalType):
        values = [Decimal(value) for value in values]
    if isinstance(inner, StructType):
        values = [None if value is None else dict(zip(inner.names, value, strict=True)) for value in values]
    array = pa.StructArray.from_arrays([pa.array(values, arrow_type(inner))], names=["f"])
    plan = avro_plan(spark, avro(kind))
    assert plan.may_fail
    made, unfit = same(plan, array)
    assert made is None
    assert (unfit.row, reason(plan, bound(plan, array), unfit)) == (row, why)
    assert [plan.steps[unfit.step].name] == (field or ["f"])
    assert same(plan, array.slice(0, row))[1] is None


def test_only_schemas_that_a_row_may_not_fit_may_fail():
    spark = StructType([StructField("f", IntegerType(), nullable=False), StructField("s", StringType())])
    fits = avro("int", {"name": "s", "type": ["null", "string"]})
    assert not avro_plan(spark, fits).may_fail
    assert avro_plan(spark, avro("int", {"name": "s", "type": "string"})).may_fail
    assert not json_plan(spark, "UTC").may_fail


def test_columns_of_nothing_but_nulls_and_of_no_rows():
    spark = StructType([StructField("n", NullType()), StructField("l", ArrayType(NullType()))])
    array = pa.array(
        [{"n": None, "l": [None, None]}, None, {"n": None, "l": None}],
        pa.struct([("n", pa.null()), ("l", pa.list_(pa.null()))]),
    )
    assert same(json_plan(spark, "UTC"), array)[0] == [b'{"l":[null,null]}', None, b"{}"]
    assert same(json_plan(spark, "UTC"), array.slice(0, 0))[0] == []
    schema = (
        avro(["null", "int"])
        .replace('"f"', '"n"')
        .replace("]}]}", ']}, {"name": "l", "type": ["null", {"type": "array", "items": "null"}]}]}')
    )
    assert same(avro_plan(spark, schema), array)[0] == [b"\0\2\4\0", None, b"\0\0"]


def test_large_offsets_and_views_are_taken_as_small_ones():
    spark = StructType([StructField("s", StringType()), StructField("l", ArrayType(IntegerType()))])
    rows = [{"s": "x", "l": [1, None]}, {"s": None, "l": None}]
    small, large = (
        pa.array(rows, pa.struct([("s", text), ("l", kind)]))
        for text, kind in ((pa.string(), pa.list_(pa.int32())), (pa.large_string(), pa.large_list(pa.int32())))
    )
    plan = json_plan(spark, "UTC")
    assert same(plan, large) == same(plan, small) == ([b'{"s":"x","l":[1,null]}', b"{}"], None)
    view = pa.StructArray.from_arrays([small.field(0).cast(pa.string_view()), small.field(1)], names=["s", "l"])
    assert same(plan, view) == same(plan, small)


CONTRADICTORY = {
    "offsets that fall": ([0, 3, 1, 4], 0, 3),
    "an offset behind the data": ([0, 99, 2, 4], 0, 3),
    "a negative offset": ([0, -4, 2, 4], 0, 3),
    # Arrow looks at the ends of the whole array.
    "an offset behind the data, in a slice": ([0, 99, 2, 4], 0, 1),
    "a negative offset, in a slice": ([0, -4, 2, 4], 1, 2),
}


@pytest.mark.parametrize("name", CONTRADICTORY)
@pytest.mark.parametrize("kind", [pa.string(), pa.list_(pa.int8())], ids=["text", "list"])
def test_arrays_that_contradict_themselves_are_refused(name, kind):
    ends, skipped, rows = CONTRADICTORY[name]
    text = pa.Array.from_buffers(pa.string(), 3, [None, pa.array(ends, pa.int32()).buffers()[1], pa.py_buffer(b"abcd")])
    if pa.types.is_list(kind):
        text = pa.Array.from_buffers(kind, 3, text.buffers()[:2], children=[pa.array([1, 2, 3, 4], pa.int8())])
    array = pa.StructArray.from_arrays([text], names=["s"])
    spark = ArrayType(ByteType()) if pa.types.is_list(kind) else StringType()
    with pytest.raises(ValueError, match="not in order"):
        bound(json_plan(StructType([StructField("s", spark)]), "UTC"), array.slice(skipped, rows))


def test_arrays_of_another_type_are_refused():
    plan = json_plan(StructType([StructField("s", LongType())]), "UTC")
    for array in (pa.array([1], pa.int32()), pa.array(["x"]), pa.array([[1]])):
        with pytest.raises(ValueError, match="is not what is written here"):
            bound(plan, pa.StructArray.from_arrays([array], names=["s"]))


@given(st.randoms(use_true_random=True))
def test_buffers_of_others_are_written_alike_or_refused(rng):
    spark = struct_of(rng, 3, FIELDS_OF_JSON, of_avro=False)
    case = Making(rng, ROWS, most=3).record(3, ROWS, nullable=True)
    for plan, array in (
        (json_plan(spark, "Europe/Berlin"), column(rng, spark, ROWS)),
        (avro_plan(case.type, json.dumps(case.schema)), case.column),
    ):
        hostile = damaged(rng, array)
        if hostile is None:
            continue
        try:
            bound(plan, hostile)
        except (ValueError, pa.ArrowException):
            continue
        same(plan, hostile)
