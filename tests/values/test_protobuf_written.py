"""Both twins write the same Protobuf, and google's messages and our decoder read what was in the column."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from protobuf_cases import case_of
from protobuf_decoding import OPTIONS, decoder_of, rows_of, schema_of
from pyspark.sql.types import ArrayType, IntegerType, MapType, StringType, StructField, StructType, TimestampType
from test_protobuf_like_google import row_of, shown
from test_written_twins import same
from written_samples import damaged

from spark_kafka_group.executor.schemas.arrow_types import arrow_type, nullable
from spark_kafka_group.executor.schemas.ddl import schema_of as type_of
from spark_kafka_group.executor.schemas.proto_texts import parsed, well_known
from spark_kafka_group.executor.schemas.protobuf_files import linked
from spark_kafka_group.executor.schemas.protobuf_from_spark import proto_text_of
from spark_kafka_group.executor.schemas.protobuf_schema import as_text
from spark_kafka_group.executor.schemas.protobuf_types import ProtobufOptions, spark_type
from spark_kafka_group.executor.values.protobuf_plan import protobuf_plan
from spark_kafka_group.executor.values.write_plan import Misfit, bound, places, reason


def read_column(rng, options):
    """A random case, the column that the source reads of its values, and the plan to write it."""
    case = case_of(rng)
    schema = schema_of(case.descriptors)
    decoder = decoder_of(case, options, "c")
    column, _ = decoder.decode(pa.array(case.values, pa.binary()))
    spark = spark_type(schema, case.message, options)
    return case, decoder, column, protobuf_plan(spark, as_text(schema.only(case.message)))


@given(st.randoms(use_true_random=True), OPTIONS)
def test_what_is_read_is_written_so_that_google_and_the_source_read_it_again(rng, options):
    case, decoder, column, plan = read_column(rng, options)
    for row, expected in enumerate(rows_of(column)):
        made, unfit = same(plan, column.slice(row, 1), b"")
        if unfit is not None:  # a number that an enum does not have, or an empty wrapper in a list
            assert unfit.problem in (Misfit.SYMBOL, Misfit.NULL)
            assert plan.may_fail
            continue
        again, malformed = decoder.decode(pa.array(made, pa.binary()))
        assert not malformed
        assert shown(rows_of(again)[0]) == shown(expected)
        if expected is not None:
            message = case.made.FromString(made[0])
            assert shown(row_of(message, options)) == shown(expected)
            assert len(message.SerializeToString()) == len(made[0])  # google puts fields of a oneof elsewhere


@given(st.randoms(use_true_random=True), OPTIONS)
def test_buffers_of_others_are_written_alike_or_refused(rng, options):
    *_, column, plan = read_column(rng, options)
    hostile = damaged(rng, column)
    if hostile is not None:
        try:
            bound(plan, hostile)
        except (ValueError, pa.ArrowException):
            return
        same(plan, hostile)


ALL = """
syntax = "proto3";
package all;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
enum Color { option allow_alias = true; RED = 0; ROUGE = 0; GREEN = 1; BLUE = -5; }
message All {
  int32 i32 = 1; uint32 u32 = 2; sint32 s32 = 3; fixed32 f32 = 4; sfixed32 sf32 = 5;
  int64 i64 = 6; uint64 u64 = 7; sint64 s64 = 8; fixed64 f64 = 9; sfixed64 sf64 = 10;
  bool b = 11; float f = 12; double d = 13; string s = 14; bytes y = 15; Color c = 16; optional Color n = 17;
  google.protobuf.Timestamp t = 18; google.protobuf.Duration l = 19; google.protobuf.StringValue w = 20;
  optional int32 zero = 21; repeated sint32 many = 22; repeated sint32 apart = 23 [packed = false];
  repeated string texts = 24; repeated Color colors = 25; repeated Inner inners = 26;
  map<int32, Inner> inner_of = 27; map<string, google.protobuf.Timestamp> t_of = 28;
  oneof one { int32 first = 29; string second = 32; }
  int32 day = 30; Inner Inner_ = 31;
  message Inner { int32 x = 1; Inner more = 2; }
}
"""
TYPE = (
    "i32 INT, u32 BIGINT, s32 TINYINT, f32 INT, sf32 SMALLINT, i64 INT, u64 DECIMAL(20,0), s64 BIGINT, f64 BIGINT, "
    "sf64 BIGINT, b BOOLEAN, f FLOAT, d FLOAT, s STRING, y BINARY, c STRING, n INT, t TIMESTAMP, "
    "l INTERVAL DAY TO SECOND, w STRING, zero INT, many ARRAY<INT>, apart ARRAY<INT>, texts ARRAY<STRING>, "
    "colors ARRAY<STRING>, inners ARRAY<STRUCT<x: INT>>, inner_of MAP<INT, STRUCT<x: INT>>, "
    "t_of MAP<STRING, TIMESTAMP>, second STRING, first INT, day DATE, inner_ STRUCT<more: STRUCT<x: INT>>"
)


def plan_for(text, spark, message=None):
    schema = linked([parsed("test.proto", text)], others=well_known())
    return protobuf_plan(type_of(spark), as_text(schema.only(schema.message(message).name)))


def column_of(spark, rows):
    return pa.array(rows, arrow_type(type_of(spark)))


def test_every_type_is_written_as_google_writes_it():
    from datetime import UTC, date, datetime, timedelta
    from decimal import Decimal

    from support.protobuf_messages import classes, compiled

    at, before = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC), datetime(1969, 12, 31, 23, 59, 58, 500000, UTC)
    row = {
        "i32": -1, "u32": 4294967295, "s32": -128, "f32": -1, "sf32": -32768, "i64": -7, "u64": Decimal(2**64 - 1),
        "s64": -(2**63), "f64": -1, "sf64": -2, "b": True, "f": 1.5, "d": 0.25, "s": "grüße" * 40, "y": b"\0\xff",
        "c": "BLUE", "n": 0, "t": before, "l": timedelta(days=-1, microseconds=1), "w": "", "zero": 0,
        "many": [0, -1, 64], "apart": [0, -1, 64], "texts": ["", "x"], "colors": ["RED", "ROUGE", "GREEN"],
        "inners": [{"x": 0}, {"x": 7}], "inner_of": [(0, {"x": 0})], "t_of": [("k", at)], "second": "", "first": None,
        "day": date(1969, 12, 31), "inner_": {"more": {"x": None}},
    }  # fmt: skip
    zeros = {
        name: None if value is None or not isinstance(value, int | float | str | bytes | bool) else type(value)()
        for name, value in row.items()
    }
    zeros |= {"u64": Decimal(0), "d": -0.0, "c": "RED", "zero": None, "n": None, "w": None, "second": None}
    plan = plan_for(ALL, TYPE)
    (made, nothing, null), unfit = same(plan, column_of(TYPE, [row, zeros, None]))
    assert unfit is None
    assert null is None
    message = classes(compiled({"all.proto": ALL}, "all.proto"))["all.All"]
    expected = message(
        **{name: value for name, value in row.items() if name not in DIFFERENT},
        f32=2**32 - 1, u64=2**64 - 1, f64=2**64 - 1, c=-5, t={"seconds": -2, "nanos": 500_000_000},
        l={"seconds": -86399, "nanos": -999_999_000}, w={}, colors=[0, 0, 1], inner_of={0: {}},
        t_of={"k": {"seconds": int(at.timestamp()), "nanos": 678_901_000}}, day=-1, Inner_={"more": {}},
    )  # fmt: skip
    assert message.FromString(made) == expected
    assert b"\xb2\x01\x04\0\x01\x80\x01" in made  # the packed items
    assert b"\xb8\x01\0\xb8\x01\x01\xb8\x01\x80\x01" in made  # those with tags
    assert message.FromString(nothing).SerializeToString() == nothing == message(d=-0.0).SerializeToString()


DIFFERENT = {"f32", "u64", "f64", "c", "t", "l", "w", "colors", "inner_of", "t_of", "day", "inner_"}


def test_text_that_is_no_utf8_is_written_with_replacement_characters():
    plan = plan_for('syntax = "proto3"; message M { repeated string s = 1; }', "s ARRAY<STRING>")
    texts = [b"\xff", b"a\xc3" + b"b" * 130, b"\xed\xa0\x80x", "ü".encode(), b"\xf0\x9f\x98"]
    flat = pa.array(texts, pa.binary())
    text = pa.Array.from_buffers(pa.string(), len(texts), flat.buffers())
    array = pa.StructArray.from_arrays([pa.ListArray.from_arrays(pa.array([0, 5], pa.int32()), text)], names=["s"])
    [made], _ = same(plan, array)
    good = ["�", "a�" + "b" * 130, "�x", "ü", "�"]
    assert same(plan, column_of("s ARRAY<STRING>", [{"s": good}]))[0] == [made]


PROTO2 = """
message M { required int32 r = 1; required G g = 2; message G { required string s = 1; } repeated int32 l = 3;
  enum E { A = 1; } optional E e = 4; map<string, int32> m = 5; oneof o { int32 x = 6; string y = 7; }
  optional uint32 u = 8; optional uint64 big = 9; repeated group Part = 10 { optional int32 p = 1; } }
"""
REST = "r INT NOT NULL, g STRUCT<s: STRING NOT NULL> NOT NULL"
UNFIT = {
    "a null": ("r INT, g STRUCT<s: STRING>", {"r": None}, "r", "it is null, and the schema has int32 here, which"),
    "a message": ("r INT, g STRUCT<s: STRING>", {"g": None}, "g", "it is null, and the schema has message G here"),
    "a null in it": ("r INT, g STRUCT<s: STRING>", {"g": {"s": None}}, "g.s", "it is null, and the schema has string"),
    "an item": (f"{REST}, l ARRAY<INT>", {"l": [1, None]}, "l.element", "it is null, and the schema has int32 here"),
    "an entry": (f"{REST}, m MAP<STRING, INT>", {"m": [("k", None)]}, "m.value", "it is null, and the schema has"),
    "a symbol": (f"{REST}, e STRING", {"e": "a"}, "e", "'a' is no symbol of the schema's enum E"),
    "a number": (f"{REST}, e BIGINT", {"e": 0}, "e", "0 is no number of the schema's enum E"),
    "several of a oneof": (
        f"{REST}, x INT, y STRING", {"x": 0, "y": ""}, "", "several of the fields x, y are set, and a oneof has one"
    ),
    "a large number": (f"{REST}, l ARRAY<BIGINT>", {"l": [2**31]}, "l.element", "2147483648 is out of range for the"),
    "a negative number": (f"{REST}, u BIGINT", {"u": -1}, "u", "-1 is out of range for the schema's uint32"),
    "one that is widened": (f"{REST}, big INT", {"big": -1}, "big", "-1 is out of range for the schema's uint64"),
    "a decimal": (f"{REST}, big DECIMAL(20,0)", {"big": 2**64}, "big", "18446744073709551616 is out of range for the"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNFIT)
def test_a_row_that_does_not_fit_is_named(name):
    from decimal import Decimal

    spark, changed, field, why = UNFIT[name]
    plan = plan_for(PROTO2, spark)
    assert plan.may_fail
    sound = {"r": 1, "g": {"s": "x"}}
    if "DECIMAL" in spark:
        changed = {key: Decimal(value) for key, value in changed.items()}
    array = column_of(spark, [sound, sound | changed])
    made, unfit = same(plan, array)
    assert made is None
    assert (unfit.row, plan.steps[unfit.step].name) == (1, field)
    assert reason(plan, bound(plan, array), unfit).startswith(why)
    assert same(plan, array.slice(0, 1))[0] == [b"\x08\x01\x12\x03\x0a\x01x"]


def test_only_schemas_that_a_row_may_not_fit_may_fail():
    assert not plan_for(PROTO2, f"{REST}, u INT, x INT").may_fail
    schema = linked([parsed("test.proto", PROTO2)])
    spark = spark_type(schema, "M", ProtobufOptions(enums_as_ints=True))
    for left, may_fail in (({"x", "y", "e"}, False), ({"y", "e"}, False), ({"e"}, True), ({"x", "y"}, True)):
        chosen = StructType([field for field in spark.fields if field.name not in left])
        assert protobuf_plan(chosen, as_text(schema.only("M"))).may_fail == may_fail


@pytest.mark.parametrize("label", ["required", "optional", ""])
def test_a_time_of_a_schema_s_own_has_the_zeros_that_its_fields_need(label):
    from datetime import UTC, datetime

    from support.protobuf_messages import classes, compiled

    syntax = "proto2" if label else "proto3"
    times = f"message Timestamp {{ {label} int64 seconds = 1; {label} int32 nanos = 2; }}"
    text = f'syntax = "{syntax}"; message M {{ optional Timestamp at = 1; }} {times}'
    [made], _ = same(
        plan_for(text, "at TIMESTAMP"), column_of("at TIMESTAMP", [{"at": datetime(1970, 1, 1, tzinfo=UTC)}])
    )
    message = classes(compiled({"a.proto": text}, "a.proto"))["M"].FromString(made)
    assert message.IsInitialized()
    assert message.at.HasField("nanos") if label else made == b"\x0a\0"


def test_each_of_many_names_is_looked_for_once():
    class Name(str):
        asked = 0

        def lower(self):
            Name.asked += 1
            return super().lower()

    names = [Name(f"field_{n}") for n in range(1000)]
    struct = StructType([StructField(name, IntegerType()) for name in names])
    assert places(struct, names, "message M", "") == {name: place for place, name in enumerate(names)}
    assert Name.asked < 3000


def test_numbers_of_64_bits_without_sign_may_be_decimals():
    from decimal import Decimal

    spark = "f DECIMAL(20,0), u DECIMAL(20,0)"
    plan = plan_for('syntax = "proto3"; message M { fixed64 f = 1; uint64 u = 2; }', spark)
    [made], _ = same(plan, column_of(spark, [{"f": Decimal(2**64 - 1), "u": Decimal(2**64 - 1)}]))
    assert made == b"\x09" + b"\xff" * 8 + b"\x10" + b"\xff" * 9 + b"\x01"
    _, unfit = same(plan, column_of(spark, [{"f": Decimal(2**64), "u": None}]))
    assert (unfit.problem, plan.steps[unfit.step].name) == (Misfit.RANGE, "f")


@pytest.mark.parametrize(
    ("leaf", "most", "is_map"),
    [("a INT", 100, False), ("t TIMESTAMP", 99, False), ("w INT", 99, False), ("a INT", 50, True)],
)
def test_a_type_is_written_as_deep_as_google_reads_it(leaf, most, is_map):
    from datetime import UTC, datetime

    from support.protobuf_messages import classes, compiled

    imports = "".join(f'import "google/protobuf/{name}.proto";' for name in ("timestamp", "wrappers"))
    text = f"""syntax = "proto3"; {imports} message M {{ M m = 1; map<string, M> n = 2; int32 a = 3;
        google.protobuf.Timestamp t = 4; google.protobuf.Int32Value w = 5; }}"""
    schema = as_text(linked([parsed("a.proto", text)], others=well_known()).only("M"))
    spark, row = type_of(leaf), {"a": 1, "t": datetime(2026, 1, 1, tzinfo=UTC), "w": 1}
    for _ in range(most):
        spark = MapType(StringType(), spark) if is_map else spark
        spark, row = StructType([StructField("n" if is_map else "m", spark)]), {"m": row, "n": [("k", row)]}
    made, _ = same(protobuf_plan(spark, schema), pa.array([row], arrow_type(spark)))
    message = classes(compiled({"a.proto": text}, "a.proto"))["M"]
    assert message.FromString(made[0]).SerializeToString() == made[0]
    with pytest.raises(ValueError, match="at most 100 levels"):
        protobuf_plan(StructType([StructField("m", spark)]), schema)


def test_groups_end_with_a_tag():
    plan = plan_for(PROTO2, f"{REST}, part ARRAY<STRUCT<p: INT>>")
    rows = [{"r": 1, "g": {"s": "x"}, "part": [{"p": 1}, {"p": None}]}]
    [made], _ = same(plan, column_of(f"{REST}, part ARRAY<STRUCT<p: INT>>", rows))
    assert made.endswith(b"\x53\x08\x01\x54\x53\x54")


REFUSED = {
    "a text": ("STRING", "the column is string, and Protobuf is written of a struct"),
    "a field that is not there": (f"{REST}, more INT", "message M has no field for the column's more"),
    "one in it": ("r INT, g STRUCT<t: INT>", "message G has no field for the column's g.t: it has s"),
    "one that is required": ("r INT", "the column lacks the field g, which the schema requires: add it"),
    "another type": (f"{REST}, u STRING", "the field u is string, and the schema has uint32 there: cast it"),
    "a struct for a number": (f"{REST}, u STRUCT<a: INT>", "is struct<a:int>, and the schema has uint32"),
    "a number for a message": ("r INT, g INT", "the field g is int, and the schema has message G there"),
    "a number for a list": (f"{REST}, l INT", "the field l is int, and the schema has repeated int32 there"),
    "a list for a number": (f"{REST}, u ARRAY<INT>", "the field u is array<int>, and the schema has uint32"),
    "a list for a map": (f"{REST}, m ARRAY<INT>", "the field m is array<int>, and the schema has a map there"),
    "items of another type": (f"{REST}, l ARRAY<STRING>", "the field l.element is string, and the schema has int32"),
    "keys of another type": (f"{REST}, m MAP<INT, INT>", "the field m.key is int, and the schema has string there"),
    "digits behind the point": (f"{REST}, big DECIMAL(20,2)", "is decimal\\(20,2\\), and the schema has"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_column_that_the_schema_cannot_take_is_refused(name):
    spark, why = REFUSED[name]
    schema = linked([parsed("test.proto", PROTO2)])
    with pytest.raises(ValueError, match=why):
        protobuf_plan(type_of(spark), as_text(schema.only("M")))


def test_the_schema_of_a_type_is_read_as_that_type():
    from support.protobuf_messages import compiled

    spark = type_of(
        "id BIGINT, who STRUCT<name: STRING, b: BINARY>, Who INT, tags MAP<STRING, STRUCT<x: INT>>, l ARRAY<INT>, "
        "at TIMESTAMP, took INTERVAL DAY TO SECOND, _ STRUCT<a: BOOLEAN>, f FLOAT, d DOUBLE, ts ARRAY<TIMESTAMP>, "
        "m MAP<INT, INTERVAL DAY TO SECOND>, _1 STRUCT<_1: INT, _2: STRUCT<x: INT>>, tags_entry STRUCT<x: INT>"
    )
    text = proto_text_of(spark)
    schema = schema_of(compiled({"a.proto": text}, "a.proto"))
    assert nullable(spark_type(schema, "TopLevelRecord", ProtobufOptions())) == spark
    protobuf_plan(spark, as_text(schema.only("TopLevelRecord")))
    assert "  int64 id = 1;\n" in proto_text_of(type_of("id BIGINT NOT NULL"))


NAMES = [
    "a", "A", "_", "_1", "a_b", "aB", "AB", "_a", "tags", "tags_entry", "TagsEntry",
    "Tags", "google", "Message", "message_", "x__y", "xY", "top_level_record",
]  # fmt: skip
LEAVES = st.sampled_from([IntegerType(), TimestampType(), StringType()])


def structs(types):
    fields = st.lists(st.tuples(st.sampled_from(NAMES), types), min_size=1, max_size=5, unique_by=lambda pair: pair[0])
    return fields.map(lambda pairs: StructType([StructField(*pair) for pair in pairs]))


def with_lists(types):
    return types | types.map(ArrayType) | types.map(lambda of: MapType(StringType(), of))


@given(structs(with_lists(st.recursive(LEAVES, lambda inner: structs(with_lists(inner)), max_leaves=8))))
def test_the_schema_of_any_type_is_one_that_google_takes(spark):
    from support.protobuf_messages import classes, compiled

    refused = None
    try:
        text = proto_text_of(spark)
    except ValueError as error:
        refused = str(error)
    if refused is not None:
        assert refused.endswith((": rename one", ": rename it"))
        return
    descriptors = compiled({"a.proto": text}, "a.proto")
    assert classes(descriptors)["TopLevelRecord"]
    plan = protobuf_plan(spark, as_text(linked([parsed("a.proto", text)], others=well_known()).only("TopLevelRecord")))
    schema = schema_of(descriptors)
    read = spark_type(schema, "TopLevelRecord", ProtobufOptions())
    assert protobuf_plan(read, as_text(schema.only("TopLevelRecord"))).steps == plan.steps


@pytest.mark.parametrize(
    ("spark", "why"),
    [
        ("`a b` INT", "'a b' is no Protobuf name, of the field a b: rename it"),
        (
            "a STRUCT<b: ARRAY<ARRAY<INT>>>",
            "no type for array<int>, of the field a.b: cast it, or put it into a struct",
        ),
        ("a DECIMAL(5,2)", r"no type for decimal\(5,2\)"),
        ("a STRUCT<b_c: INT, bC: INT>", "the fields a.b_c and a.bC have the JSON name bC in Protobuf: rename one"),
        ("a_b MAP<INT, INT>, AB MAP<INT, INT>", "the fields a_b and AB have the message ABEntry in Protobuf: rename"),
        ("_1 MAP<INT, INT>", "'1Entry' is no Protobuf name, of the map _1: rename it"),
        ("a MAP<INT, INT>, AEntry INT", "the field a has the message AEntry in Protobuf, as AEntry: rename one"),
        ("a MAP<DOUBLE, INT>", "the field a has keys of double: cast them to STRING"),
    ],
)
def test_types_that_protobuf_does_not_have_are_refused(spark, why):
    with pytest.raises(ValueError, match=why):
        proto_text_of(type_of(spark))
