"""What becomes of Protobuf values, field by field: from_protobuf's rules."""

from __future__ import annotations

import pyarrow as pa
import pytest
from protobuf_cases import varint
from protobuf_decoding import rows_of

from spark_kafka_group.executor.schemas import proto_texts, protobuf_files
from spark_kafka_group.executor.schemas.protobuf_types import ProtobufOptions
from spark_kafka_group.executor.values.framing import framed_message, indexes_of, message_indexes
from spark_kafka_group.executor.values.protobuf_decoder import ProtobufDecoder

PROTO3 = 'syntax = "proto3"; '


def read(twin, text, *values, wanted=None, **options):
    """The column, and the reasons of rows that are null because their values do not fit."""
    schema = protobuf_files.linked([proto_texts.parsed("a.proto", text)], None, proto_texts.well_known())
    made = ProtobufDecoder(schema, "M", wanted, False, ProtobufOptions(**options), lambda key: None, twin)
    column, malformed = made.decode(pa.array(values, pa.binary()))
    reasons = {found.row: f"{found.field}: {found.reason}" for found in malformed}
    return [reasons.get(row, value) for row, value in enumerate(rows_of(column))]


def sized(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


ABSENT = """syntax = "%s"; message M { %s string s = 1; %s int32 n = 2; %s bool b = 3; optional double d = 4;
  repeated int32 l = 5; map<string, int32> m = 6; I i = 7; oneof o { int32 p = 8; } message I { %s int32 x = 1; } }"""


class TestAnAbsentField:
    def test_of_proto3_is_null_as_is_its_default_value_unless_defaults_are_asked_for(self, twin):
        text = ABSENT % ("proto3", "", "", "", "")
        zeros = sized(1, b"") + b"\x10\0\x18\0\x21" + bytes(8) + sized(7, b"\x08\0") + b"\x40\0"
        nothing = {"s": None, "n": None, "b": None, "d": None, "l": [], "m": {}, "i": None, "p": None}
        written = nothing | {"d": 0.0, "i": {"x": None}, "p": 0}
        assert read(twin, text, b"", zeros) == [nothing, written]
        defaults = {"s": "", "n": 0, "b": False}
        emitted = [nothing | defaults, written | defaults | {"i": {"x": 0}}]
        assert read(twin, text, b"", zeros, emit_defaults=True) == emitted

    def test_of_proto2_is_null_or_the_default_that_is_named(self, twin):
        text = r"""message M { optional int32 n = 1; optional sint32 z = 2 [default = -7]; optional bytes r = 3
            [default = "a\377"]; optional E e = 4 [default = B]; optional float f = 5 [default = -inf];
            optional string s = 6 [default = "grüße"]; enum E { A = 0; B = 9; } }"""
        found = {"n": None, "z": -7, "r": b"a\xff", "e": "B", "f": float("-inf"), "s": "grüße"}
        assert read(twin, text, b"") == read(twin, text, b"", emit_defaults=True) == [found]
        assert read(twin, text, b"\x08\0\x10\0")[0]["n"] == read(twin, text, b"\x10\0")[0]["z"] == 0

    def test_that_is_required_makes_the_value_malformed(self, twin):
        text = "message M { optional I i = 1; message I { required int32 x = 1; optional int32 y = 2; } }"
        reason = "i.x: a required field is missing"
        assert read(twin, text, b"", sized(1, b"\x08\1"), sized(1, b"\x10\1")) == [
            {"i": None}, {"i": {"x": 1, "y": None}}, reason,
        ]  # fmt: skip


class TestAFieldThatComesAgain:
    def test_is_the_last_one(self, twin):
        assert read(twin, PROTO3 + "message M { int32 n = 1; }", b"\x08\1\x08\2", b"\x08\1\x08\0") == [
            {"n": 2},
            {"n": None},
        ]

    def test_is_merged_if_it_is_a_message(self, twin):
        text = PROTO3 + "message M { I i = 1; message I { int32 x = 1; int32 y = 2; repeated int32 l = 3; I i = 4; } }"
        value = sized(1, b"\x08\1\x18\1") + b"\x50\1" + sized(1, b"\x10\2" + sized(3, b"\2\3")) + sized(1, b"\x08\4")
        merged = {"x": 4, "y": 2, "l": [1, 2, 3]}
        assert read(twin, text, value, max_depth=1) == [{"i": merged}]
        assert read(twin, text, value, max_depth=2) == [{"i": merged | {"i": None}}]

    def test_of_a_oneof_replaces_the_others_also_where_they_are_left_out(self, twin):
        text = (
            PROTO3
            + "message M { oneof o { int32 a = 1; I i = 2; string s = 3; } message I { int32 x = 1; int32 y = 2; } }"
        )
        parts = [sized(2, b"\x08\1"), b"\x08\7", sized(2, b"\x10\2")]
        rows = read(twin, text, b"".join(parts), b"".join(parts[:2]), parts[0] + parts[2])
        assert rows == [
            {"a": None, "i": {"x": None, "y": 2}, "s": None}, {"a": 7, "i": None, "s": None},
            {"a": None, "i": {"x": 1, "y": 2}, "s": None},
        ]  # fmt: skip
        assert read(twin, text, parts[0] + parts[1], wanted=("i",)) == [{"i": None}]

    def test_of_a_map_is_the_last_of_its_key(self, twin):
        entries = [b"\x08\1\x10\5", b"\x08\2", b"\x10\7\x08\1", b""]
        for key in ("int32", "uint64", "bool"):
            found = read(
                twin, PROTO3 + f"message M {{ map<{key}, int32> m = 1; }}", b"".join(sized(1, e) for e in entries)
            )
            assert found == [{"m": {False: 0, True: 7} if key == "bool" else {0: 0, 1: 7, 2: 0}}] or key == "bool"


class TestAList:
    def test_is_read_packed_or_not_and_in_parts(self, twin):
        text = "message M { repeated int32 n = 1; repeated fixed32 f = 2 [packed = true]; optional int32 x = 3; }"
        value = b"\x08\1\x08\2\x18\1" + sized(1, b"\3\4") + b"\x15\5\0\0\0" + b"\x08\5" + sized(2, b"\6\0\0\0")
        assert read(twin, text, value) == [{"n": [1, 2, 3, 4, 5], "f": [5, 6], "x": 1}]
        assert read(twin, text, sized(1, b"\x80"), sized(2, b"\0")) == [
            "n: the value ends too early", "f: the value ends too early",
        ]  # fmt: skip


def test_groups_are_messages(twin):
    text = (
        "message M { optional group G = 1 { optional int32 x = 2; repeated group H = 3 { optional string s = 4; } } }"
    )
    value = b"\x0b\x10\5\x1b" + sized(4, b"a") + b"\x1c\x1b\x1c\x0c\x0b\x10\6\x0c"
    assert read(twin, text, value) == [{"g": {"x": 6, "h": [{"s": "a"}, {"s": None}]}}]
    assert read(twin, text, b"\x0b", b"\x0c", b"\x0b\x14", b"\x2b" * 101) == [
        "g: the value ends too early", "g: a group ends that has not begun", "g: a group ends that has not begun",
        ": more than 100 groups are inside each other",
    ]  # fmt: skip


def test_edition_features_are_followed(twin):
    text = """edition = "2023"; message M { int32 plain = 1 [features.field_presence = IMPLICIT]; int32 there = 2;
        I i = 3 [features.message_encoding = DELIMITED]; string loose = 4 [features.utf8_validation = NONE];
        message I { int32 x = 1; } }"""
    value = b"\x08\0\x10\0\x1b\x08\1\x1c" + sized(4, b"\xff")
    assert read(twin, text, value) == [{"plain": None, "there": 0, "i": {"x": 1}, "loose": "\ufffd"}]


def test_texts_that_are_no_utf8_are_malformed_or_have_replacements(twin):
    bad = sized(1, b"a\xed\xa0\x80b")
    assert read(twin, PROTO3 + "message M { string s = 1; }", bad) == ["s: a text is no UTF-8"]
    assert read(twin, "message M { optional string s = 1; }", bad) == [{"s": "a\ufffdb"}]


def test_enums_are_names_or_numbers(twin):
    body = "E e = 1; %s enum E { option allow_alias = true; A = 0; B = -2; C = -2; } }"
    text = PROTO3 + "message M { " + body % ""
    assert read(twin, text, b"\x08" + varint(-2), b"\x08\x07", b"\x08" + varint(-(1 << 31))) == [
        {"e": "B"}, {"e": "UNKNOWN_ENUM_VALUE_E_7"}, {"e": "UNKNOWN_ENUM_VALUE_E_-2147483648"},
    ]  # fmt: skip
    assert read(twin, text, b"\x08\7", enums_as_ints=True) == [{"e": 7}]
    closed = "message M { optional " + body % "optional I i = 2; message I { optional E e = 1; repeated E l = 2; }"
    rows = read(twin, closed, b"\x08\7", sized(2, b"\x08\7\x10\7\x10\0" + sized(2, b"\7\0")), b"\x08\0")
    assert rows == [
        "e: an enum has no value of this number", {"e": None, "i": {"e": None, "l": ["A", "A"]}}, {"e": "A", "i": None},
    ]  # fmt: skip


def test_a_field_of_another_type_is_malformed_and_in_a_message_it_is_unknown(twin):
    text = PROTO3 + "message M { int32 n = 1; I i = 2; message I { int32 n = 1; } }"
    assert read(twin, text, sized(1, b""), sized(2, sized(1, b"")), b"\x38\1\x41" + bytes(8)) == [
        "n: the field was written with another type", {"n": None, "i": {"n": None}}, {"n": None, "i": None},
    ]  # fmt: skip


def test_times_are_microseconds_or_too_far(twin):
    text = PROTO3 + "message M { google.protobuf.Timestamp t = 1; google.protobuf.Duration d = 2; }"
    seconds = 9_223_372_036_854
    far = [b"\x08" + varint(seconds + 1), b"\x08" + varint(seconds) + b"\x10" + varint(775_808_000)]
    assert read(twin, text, sized(1, b"\x10\xe7\7") + sized(2, b"\x08\1\x10" + varint(-1999))) == [
        {"t": 0, "d": 999_999}
    ]
    assert read(twin, text, *(sized(1, each) for each in far)) == ["t: a time is too far away for its column"] * 2


def test_wrappers_and_empty_messages_follow_the_options(twin):
    text = (
        PROTO3 + "message M { google.protobuf.Int32Value w = 1; repeated google.protobuf.StringValue l = 2; E e = 3;"
        " message E {} }"
    )
    value = sized(1, b"") + sized(2, sized(1, b"a")) + sized(2, b"") + sized(3, b"")
    assert read(twin, text, value) == [{"w": {"value": None}, "l": [{"value": "a"}, {"value": None}]}]
    kept = {"w": None, "l": ["a", None], "e": {"__dummy_field_in_empty_struct": None}}
    assert read(twin, text, value, b"", unwrap=True, retain_empty=True) == [kept, {"w": None, "l": [], "e": None}]
    assert read(twin, text, value, unwrap=True, emit_defaults=True) == [{"w": 0, "l": ["a", ""]}]


HOSTILE = {
    b"\0": ": a field has the number 0, or a wire type that there is not",
    b"\x0f": "n: a field has the number 0, or a wire type that there is not",
    b"\x08": "n: the value ends too early",
    b"\x08" + b"\xff" * 10: "n: a number has too many bytes",
    b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\1": "s: the value ends too early",
    b"\x12\5abc": "s: the value ends too early",
    b"\x39\0": ": the value ends too early",
}


@pytest.mark.parametrize(("value", "reason"), HOSTILE.items())
def test_hostile_bytes_are_malformed(twin, value, reason):
    assert read(twin, "message M { optional int32 n = 1; optional string s = 2; }", value) == [reason]


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"\0rest", ((0,), 1)), (b"\2\2", ((1,), 2)), (b"\4\0\2", ((0, 1), 3)), (b"\x80\0", ((0,), 2)), (b"", None),
        (b"\2", None), (b"\1\0", None), (b"\xca\1", None), (b"\x80" * 5 + b"\0", None), (b"\2\x80\1", ((64,), 3)),
    ],
)  # fmt: skip
def test_message_indexes_are_a_path(data, found):
    assert message_indexes(data) == found
    assert framed_message(b"\0\0\0\0\7" + data) == (None if found is None else ((7, found[0]), 5 + found[1]))
    if found is not None:
        written = indexes_of(found[0])
        assert message_indexes(written) == (found[0], len(written))
