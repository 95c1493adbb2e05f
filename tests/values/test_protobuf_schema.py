"""Schemas of Protobuf: texts and files of descriptors say the same, and protoc is the judge."""

from __future__ import annotations

from pathlib import Path

import pytest
from grpc_tools import protoc
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_group.executor.schemas import descriptor_sets, proto_texts, protobuf_files, protobuf_schema
from spark_kafka_group.executor.schemas.protobuf_schema import ProtobufSchemaError
from spark_kafka_group.executor.schemas.protobuf_types import ProtobufOptions, spark_type

INCLUDED = Path(protoc.__file__).parent / "_proto"

PROTO2 = (
    r"""
// a comment
syntax = "proto2"; /* another
one */
package shop . v1;
""".replace(" . ", ".")
    + r"""
import "google/protobuf/timestamp.proto";
import public "google/protobuf/wrappers.proto";
option java_package = "com.example"; option java_multiple_files = true;
extend Order { optional string extra = 100; }
message Order {
  option deprecated = true;
  required int64 id = 1;
  optional string name = 2 [default = "gr\303\274\xc3\x9fe \"x\"\n" "more", deprecated = true];
  optional bytes raw = 3 [default = "\001\377a\?"];
  optional double far = 4 [default = -inf]; optional float near = 5 [default = 1.5e3];
  optional sint32 below = 6 [default = -0x10]; optional uint32 octal = 7 [default = 017];
  optional bool sure = 8 [default = true];
  optional State state = 9 [default = DONE];
  repeated int32 packed = 10 [packed = true];
  repeated group Line = 11 { optional string what = 1; optional group Deep = 2 { optional int32 x = 1; } }
  map<string, Inner.Deeper> of_text = 12;
  map < int32 , State > of_number = 13;
  oneof kind { string one = 14; .shop.v1.Order.Inner other = 15; group Third = 16 { } }
  enum State {
    option allow_alias = true; NEW = 0; DONE = 1; OLD = 1; BAD = -2 [deprecated = true]; reserved 5, 8 to max; }
  message Inner { message Deeper { optional Inner back = 1; } optional Deeper down = 1; }
  reserved 200 to 299, 301; reserved "gone";
  extensions 100 to 199 [declaration = { number: 100, full_name: ".shop.v1.extra", type: "string" }];
  optional google.protobuf.Timestamp at = 17;
  optional string message = 18; optional string option = 19;
}
enum Top { A = 0; }
service S { rpc Do (Order) returns (stream Order) { option deprecated = true; } rpc More (Order) returns (Order); }
message Second { optional Order order = 1; optional Top top = 2; };
"""
)
PROTO3 = """
syntax = 'proto3';
message M {
  int32 plain = 1; optional int32 present = 2; string text = 3; repeated E all = 4; oneof o { bool a = 5; bytes b = 6; }
  E e = 7; map<bool, google.protobuf.Int32Value> m = 8; google.protobuf.Struct any = 9;
}
enum E { ZERO = 0; ONE = 1; }
import "google/protobuf/wrappers.proto"; import "google/protobuf/struct.proto";
"""
EDITION = """
edition = "2023";
package e;
option features.field_presence = IMPLICIT; option features.message_encoding = DELIMITED;
message M {
  int32 plain = 1; int32 present = 2 [features.field_presence = EXPLICIT, default = 5];
  M2 inner = 3; M2 sized = 4 [features.message_encoding = LENGTH_PREFIXED];
  map<string, M2> m = 5; string loose = 6 [features.utf8_validation = NONE];
  int32 must = 7 [features.field_presence = LEGACY_REQUIRED];
  Closed closed = 8 [features = { field_presence: EXPLICIT }];
  map<string, string> texts = 9 [features.utf8_validation = NONE];
}
message M2 { Open open = 1; }
enum Closed { option features.enum_type = CLOSED; C = 1; }
enum Open { O = 0; }
"""


def compiled(tmp_path: Path, text: str, name: str = "test.proto") -> bytes:
    (tmp_path / name).write_text(text)
    out = tmp_path / "set"
    arguments = [f"-I{tmp_path}", f"-I{INCLUDED}", "--include_imports", f"--descriptor_set_out={out}", name]
    assert protoc.main(["protoc", *arguments]) == 0
    return out.read_bytes()


def of_text(text: str) -> protobuf_schema.ProtobufSchema:
    return protobuf_files.linked([proto_texts.parsed("test.proto", text)], "test.proto", proto_texts.well_known())


@pytest.mark.parametrize("text", [PROTO2, PROTO3, EDITION], ids=["proto2", "proto3", "2023"])
def test_a_text_says_what_protoc_says_of_it(tmp_path, text):
    files = descriptor_sets.files(compiled(tmp_path, text))
    theirs, ours = protobuf_files.linked(files, "test.proto"), of_text(text)
    assert ours.first == theirs.first
    for name in theirs.messages.keys() & ours.messages.keys():
        assert ours.messages[name] == theirs.messages[name]
    for name in theirs.enums.keys() & ours.enums.keys():
        assert ours.enums[name] == theirs.enums[name]
    assert set(theirs.first) <= ours.messages.keys()
    assert protobuf_schema.of_text(protobuf_schema.as_text(ours)) == ours


@pytest.mark.parametrize("name", proto_texts.WELL_KNOWN)
def test_files_that_are_everywhere_are_known_as_they_are(tmp_path, name):
    if not (INCLUDED / name).exists() and not name.startswith("google/type"):
        pytest.skip("Confluent's own; its values are read in tests of the registry")
    import google

    folders = [f"-I{INCLUDED}", *(f"-I{Path(each).parent}" for each in google.__path__)]
    out = tmp_path / "set"
    assert protoc.main(["protoc", *folders, f"--descriptor_set_out={out}", name]) == 0
    theirs = protobuf_files.linked(descriptor_sets.files(out.read_bytes()))
    ours = protobuf_files.linked(proto_texts.well_known())
    for each in theirs.first:
        assert ours.messages[each] == theirs.messages[each]


class TestAMessage:
    def test_is_found_by_its_full_or_simple_name(self):
        schema = of_text(PROTO2)
        assert schema.message(None).name == "shop.v1.Order"
        assert schema.message("shop.v1.Second") == schema.message("Second")
        assert schema.message("Inner.Deeper").name == "shop.v1.Order.Inner.Deeper"

    def test_of_a_name_that_two_have_is_asked_for_by_its_full_name(self):
        schema = of_text("message A { message X {} } message B { message X {} }")
        with pytest.raises(ProtobufSchemaError, match="2 messages X: give the full name, such as A.X"):
            schema.message("X")
        with pytest.raises(ProtobufSchemaError, match="no message Y: it has A, A.X, B, B.X"):
            of_text("message A { message X {} } message B { message X {} }").only("A") and schema.message("Y")

    def test_has_message_indexes_with_and_without_entries_of_maps(self):
        schema = of_text("message A {} message B { map<string, string> m = 1; message C {} }")
        assert schema.messages["A"].paths == ((0,),)
        assert schema.messages["B.C"].paths == ((1, 0), (1, 1))
        file = proto_texts.parsed("f", "message A {} message B { map<string, string> m = 1; message C {} }")
        assert protobuf_files.names_at(file, (1, 0)) == {"B.MEntry", "B.C"}
        assert protobuf_files.names_at(file, (2,)) == frozenset()


REFUSED = {
    "message M { int32 a = 1 }": "line 1 .* has '}' where ; should be",
    "message M {": "ends too early",
    'syntax = "proto4"; message M {}': "edition proto4, which is not known",
    'edition = "\\nM";': r"edition \\nM, which is not known",
    "message M { Nothing a = 1; }": "no type Nothing, which the field M.a has",
    "message M { int32 a = 1; int32 a = 2; }": "two fields with one name",
    "message M { int32 a = 1; int32 b = 1; }": "two fields with one number",
    "message M { int32 a = 0; }": "a field whose number is not from 1",
    "message M {} message M {}": "the type M twice",
    "message M { map<double, int32> m = 1; }": "M.MEntry is no entry of a map",
    "\0": r"has '\\x00' where",
    "message M { int32 a = 099; }": "where a whole number should be",
    "lines {}": "line 1 .* where a message or another statement should be",
    "message A {" * 101 + "}" * 101: "more than 100 messages inside each other",
}


@pytest.mark.parametrize(("text", "message"), REFUSED.items())
def test_a_text_that_is_none_is_refused_in_a_sentence(text, message):
    with pytest.raises(ProtobufSchemaError, match=message):
        of_text(text)


def test_a_file_that_has_no_descriptors_is_refused(tmp_path):
    data = compiled(tmp_path, PROTO3)
    for broken in (b"", b"hello", data[:-3], b"\x0a\xff\xff\xff\xff\x0f"):
        with pytest.raises(ProtobufSchemaError, match="no FileDescriptorSet: write it with protoc"):
            descriptor_sets.files(broken)


@given(st.binary() | st.text().map(str.encode))
def test_nothing_but_a_sentence_comes_of_any_bytes(data):
    for parse in (descriptor_sets.files, lambda each: [proto_texts.parsed("x", each.decode(errors="replace"))]):
        try:
            protobuf_files.linked(parse(data))
        except ProtobufSchemaError as error:
            assert "\n" not in str(error)  # noqa: PT017


PLAIN = "struct<a:int,b:bigint,e:string,w:struct<value:int>,l:array<string>,m:map<int,string>>"


class TestSparksType:
    @pytest.mark.parametrize(
        ("options", "kind"),
        [
            ({}, PLAIN),
            (
                {"enums_as_ints": True},
                "struct<a:int,b:bigint,e:int,w:struct<value:int>,l:array<string>,m:map<int,int>>",
            ),
            (
                {"upcast_unsigned": True, "unwrap": True},
                "struct<a:bigint,b:decimal(20,0),e:string,w:bigint,l:array<string>,m:map<bigint,string>>",
            ),
            (
                {"retain_empty": True},
                f"{PLAIN[:-1]},n:struct<__dummy_field_in_empty_struct:string>>",
            ),
        ],
    )
    def test_follows_from_protobufs_options(self, options, kind):
        text = """syntax = "proto3"; message M { uint32 a = 1; uint64 b = 2; E e = 3; google.protobuf.UInt32Value w = 4;
            repeated string l = 5; map<uint32, E> m = 6; Empty n = 7; message Empty {} enum E { A = 0; } }"""
        assert spark_type(of_text(text), "M", ProtobufOptions(**options)).simpleString() == kind

    def test_has_times_by_the_names_of_message_and_fields(self):
        text = """message M { optional google.protobuf.Timestamp a = 1; optional google.protobuf.Duration b = 2;
            optional Timestamp c = 3; optional Other.Timestamp d = 4; message Other { message Timestamp {
            optional int64 seconds = 1; } } }
            message Timestamp { optional sfixed64 seconds = 8; optional uint32 nanos = 9; }"""
        kind = spark_type(of_text(text), "M", ProtobufOptions()).simpleString()
        assert kind == "struct<a:timestamp,b:interval day to second,c:timestamp,d:struct<seconds:bigint>>"

    @pytest.mark.parametrize(
        ("depth", "kind"),
        [
            (1, "struct<a:int>"),
            (2, "struct<a:int,m:struct<a:int>>"),
            (3, "struct<a:int,m:struct<a:int,m:struct<a:int>>>"),
        ],
    )
    def test_of_a_recursive_message_ends_where_it_is_told(self, depth, kind):
        schema = of_text("message M { optional int32 a = 1; optional M m = 2; }")
        assert spark_type(schema, "M", ProtobufOptions(max_depth=depth)).simpleString() == kind
        with pytest.raises(ProtobufSchemaError, match="set recursive.fields.max.depth"):
            spark_type(schema, "M", ProtobufOptions())

    def test_has_no_nulls_where_from_protobuf_has_none(self):
        text = """message M { required int32 a = 1; optional int32 b = 2; repeated int32 l = 3; map<int32, int32> m = 4;
            repeated google.protobuf.Int32Value w = 5; }"""
        found = spark_type(of_text(text), "M", ProtobufOptions())
        assert [field.nullable for field in found.fields] == [False, True, True, True, True]
        assert not found["l"].dataType.containsNull
        assert not found["m"].dataType.valueContainsNull
        assert not found["w"].dataType.containsNull
        assert spark_type(of_text(text), "M", ProtobufOptions(unwrap=True))["w"].dataType.containsNull
        assert not spark_type(of_text(text), "M", ProtobufOptions(unwrap=True, emit_defaults=True))[
            "w"
        ].dataType.containsNull

    def test_without_fields_or_end_is_refused(self):
        with pytest.raises(ProtobufSchemaError, match="has no fields"):
            spark_type(of_text("message M {}"), "M", ProtobufOptions())
        many = " ".join(f"message M{i} {{ optional M{i + 1} a = 1; optional M{i + 1} b = 2; }}" for i in range(40))
        with pytest.raises(ProtobufSchemaError, match="more than 50000 fields"):
            spark_type(of_text(f"{many} message M40 {{ optional int32 x = 1; }}"), "M0", ProtobufOptions())
