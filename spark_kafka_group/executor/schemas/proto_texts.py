"""Texts of .proto files, as registries keep them: what they declare, without what no value depends on.

Options, services, extensions and reserved names are read over. The grammar is that of protoc, of proto2, proto3 and
editions; the text has passed protoc or a registry before, so that not all of its mistakes are found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache

from spark_kafka_group.executor.schemas.descriptor_sets import of_base64, unescaped
from spark_kafka_group.executor.schemas.protobuf_files import (
    EXPANDED,
    GROUP,
    LISTS,
    OPTIONAL,
    PACKED,
    REPEATED,
    REQUIRED,
    UTF8,
    DeclaredEnum,
    DeclaredField,
    DeclaredFile,
    DeclaredMessage,
    Features,
)
from spark_kafka_group.executor.schemas.protobuf_schema import MAX_DEPTH, MAX_TEXT, SCALARS, ProtobufSchemaError
from spark_kafka_group.text.foreign_text import excerpt

TOKEN = re.compile(
    r"(?P<space>\s+|//[^\n]*|/\*.*?\*/)"
    r"|(?P<name>\.?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)"
    r"|(?P<number>0[xX][0-9a-fA-F]+|(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?[fF]?)"
    r"|(?P<string>\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')"
    r"|(?P<sign>[^\s\w])",
    flags=re.DOTALL | re.ASCII,
)
BASE64 = re.compile(r"[A-Za-z0-9+/\s]{8,}=*\s*")
OPENING = {"{": "}", "[": "]", "(": ")", "<": ">"}


def in_capitals(parts: Iterable[str]) -> str:
    """Parts of a name as one, each of which begins with a capital; the rest of each stays."""
    return "".join(part[:1].upper() + part[1:] for part in parts)


def entry_name(field: str) -> str:
    """The message that protoc makes for the entries of a map."""
    return f"{in_capitals(field.split('_'))}Entry"


@lru_cache(maxsize=256)
def parsed(name: str, text: str) -> DeclaredFile:
    """What a text declares, or base64 of a FileDescriptorProto; it is the file `name`.

    Raises
    ------
    ProtobufSchemaError
        With the line.
    """
    if len(text) > MAX_TEXT:
        raise ProtobufSchemaError(f"the .proto text has {len(text)} characters, and {MAX_TEXT} are allowed")
    if BASE64.fullmatch(text):
        return of_base64(name, text)
    return _ProtoParser(name, text).file()


class _ProtoParser:
    """One parse: tokens, and the place in them."""

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name, text
        self._tokens: list[tuple[str, str, int]] = []
        at = 0
        while at < len(text):
            found = TOKEN.match(text, at)
            assert found is not None  # a sign is any character
            kind = str(found.lastgroup)
            if kind != "space":
                self._tokens.append((kind, found.group(), at))
            at = found.end()
        self._at = 0

    # --- tokens -------------------------------------------------------------------------------------------------------

    def _peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._tokens[at][1] if at < len(self._tokens) else ""

    def _next(self, kind: str = "") -> str:
        if self._at >= len(self._tokens):
            raise self._error_at(len(self._text), "ends too early")
        found, token, _ = self._tokens[self._at]
        if kind and found != kind:
            raise self._error(f"has {excerpt(token)} where a {kind} should be")
        self._at += 1
        return token

    def _expect(self, *tokens: str) -> None:
        for token in tokens:
            if self._peek() != token:
                raise self._error(f"has {excerpt(self._peek()) if self._peek() else 'its end'} where {token} should be")
            self._at += 1

    def _took(self, token: str) -> bool:
        if self._peek() != token:
            return False
        self._at += 1
        return True

    def _error(self, what: str) -> ProtobufSchemaError:
        place = self._tokens[self._at][2] if self._at < len(self._tokens) else len(self._text)
        return self._error_at(place, what)

    def _error_at(self, place: int, what: str) -> ProtobufSchemaError:
        line = self._text.count("\n", 0, place) + 1
        return ProtobufSchemaError(f"line {line} of the .proto text {excerpt(self._name)} {what}")

    def _skip_block(self) -> None:
        """Go behind the bracket that closes the one here, or behind a semicolon before it."""
        closing: list[str] = []
        while True:
            token = self._next()
            if token in OPENING:
                closing.append(OPENING[token])
            elif closing and token == closing[-1]:
                closing.pop()
                if not closing and token == "}":
                    return
            elif not closing and token == ";":
                return

    # --- a file -------------------------------------------------------------------------------------------------------

    def file(self) -> DeclaredFile:
        made = DeclaredFile(self._name)
        while self._at < len(self._tokens):
            word = self._next()
            if word in ("syntax", "edition"):
                self._expect("=")
                made.edition = self._strings().decode(errors="replace")
                self._expect(";")
            elif word == "package":
                made.package = self._next("name")
                self._expect(";")
            elif word == "option":
                self._file_option(made)
            elif word in ("export", "local"):
                continue
            elif word == "message":
                made.messages.append(self._message(MAX_DEPTH))
            elif word == "enum":
                made.enums.append(self._enum())
            elif word in ("import", "extend", "service"):
                self._skip_block()
            elif word != ";":
                self._at -= 1
                raise self._error(f"has {excerpt(word)} where a message or another statement should be")
        return made

    def _file_option(self, made: DeclaredFile) -> None:
        checked = self._peek() == "java_string_check_utf8" and self._peek(2) == "true"
        self._option(made.features)
        if checked and made.edition == "proto2":
            made.features[UTF8] = "VERIFY"

    def _message(self, depth: int) -> DeclaredMessage:
        made = DeclaredMessage(self._next("name"))
        self._body(made, depth)
        return made

    def _body(self, made: DeclaredMessage, depth: int) -> None:
        if not depth:
            raise self._error(f"has more than {MAX_DEPTH} messages inside each other")
        self._expect("{")
        while not self._took("}"):
            word = self._next()
            if word in ("export", "local") and self._peek() in ("message", "enum"):
                word = self._next()
            if word == "message":
                made.messages.append(self._message(depth - 1))
            elif word == "enum":
                made.enums.append(self._enum())
            elif word == "option":
                self._option(made.features)
            elif word in ("extend", "extensions", "reserved"):
                self._skip_block()
            elif word == "oneof":
                self._oneof(made, depth)
            elif word != ";":
                self._at -= 1
                self._field(made, None, depth)

    def _oneof(self, made: DeclaredMessage, depth: int) -> None:
        self._next("name")
        self._expect("{")
        made.oneofs.append({})
        number = len(made.oneofs) - 1
        while not self._took("}"):
            if self._took("option"):
                self._option(made.oneofs[number])
            elif not self._took(";"):
                self._field(made, number, depth)

    def _field(self, made: DeclaredMessage, oneof: int | None, depth: int) -> None:
        label = self._next() if self._peek() in (OPTIONAL, REQUIRED, REPEATED) else ""
        if self._peek() == "map" and self._peek(1) == "<":
            self._map(made)
            return
        kind = self._next("name")
        name = self._next("name")
        self._expect("=")
        field = DeclaredField(name, self._integer(), "", kind, label, oneof=oneof)
        if kind in SCALARS:
            field.kind, field.type_name = kind, ""
        if kind == GROUP:
            field = DeclaredField(name.lower(), field.number, GROUP, name, label, oneof=oneof)
        made.fields.append(field)
        self._field_options(field)
        if kind == GROUP:
            group = DeclaredMessage(name)
            made.messages.append(group)
            self._body(group, depth - 1)
        else:
            self._expect(";")

    def _map(self, made: DeclaredMessage) -> None:
        self._expect("map", "<")
        key = self._next("name")
        self._expect(",")
        value = self._next("name")
        self._expect(">")
        name = self._next("name")
        self._expect("=")
        number = self._integer()
        entry = DeclaredMessage(entry_name(name))
        entry.map_entry = True
        entry.fields = [
            DeclaredField(of, at, kind if kind in SCALARS else "", "" if kind in SCALARS else kind)
            for of, at, kind in (("key", 1, key), ("value", 2, value))
        ]
        made.messages.append(entry)
        field = DeclaredField(name, number, "", entry.name, REPEATED)
        made.fields.append(field)
        self._field_options(field)
        for each in entry.fields:
            each.features = field.features
        self._expect(";")

    def _enum(self) -> DeclaredEnum:
        made = DeclaredEnum(self._next("name"))
        self._expect("{")
        while not self._took("}"):
            word = self._next()
            if word == "option" and self._peek() != "=":
                self._option(made.features)
            elif word == "reserved" and self._peek() != "=":
                self._skip_block()
            elif word != ";":
                self._expect("=")
                made.values.append((word, self._integer()))
                if self._peek() == "[":
                    self._options({})
                self._expect(";")
        return made

    # --- options ------------------------------------------------------------------------------------------------------

    def _option(self, features: Features) -> None:
        self._assignment(features)
        self._expect(";")

    def _field_options(self, field: DeclaredField) -> None:
        if self._peek() == "[":
            given = self._options(field.features)
            if given is not None:
                field.default = self._default(given, field.kind)

    def _options(self, features: Features) -> list[tuple[str, str]] | None:
        """Options in brackets: the tokens of `default`, if it is there."""
        default = None
        self._expect("[")
        while not self._took("]"):
            name, value = self._assignment(features)
            if name == "default":
                default = value
            if self._peek() != "]":
                self._expect(",")
        return default

    def _assignment(self, features: Features) -> tuple[str, list[tuple[str, str]]]:
        name, value, depth = "", [], 0
        while self._peek() != "=":
            name += self._next()
        self._expect("=")
        while depth or self._peek() not in (";", ",", "]"):
            kind = self._tokens[self._at][0] if self._at < len(self._tokens) else ""
            token = self._next()
            depth += (token in OPENING) - (token in OPENING.values())
            value.append((kind, token))
        if name.startswith("features.") and "(" not in name and len(value) == 1:
            features[name.removeprefix("features.")] = value[0][1]
        elif name == "features":
            words = [token for kind, token in value if kind == "name"]
            features.update(zip(words[::2], words[1::2], strict=False))
        elif name == "packed":
            features[LISTS] = PACKED if value == [("name", "true")] else EXPANDED
        return name, value

    def _default(self, value: list[tuple[str, str]], kind: str) -> str:
        if any(of == "string" for of, _ in value):
            data = b"".join(unescaped(token[1:-1]) for of, token in value if of == "string")
            return data.decode("latin-1" if kind == "bytes" else "utf-8", "replace")
        text = "".join(token for _, token in value)
        sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
        if digits[:1].isdigit() and kind not in ("float", "double"):
            return sign + str(self._whole(digits))
        return sign + digits.rstrip("fF") if digits[:1].isdigit() or digits[:1] == "." else text

    def _integer(self) -> int:
        sign = -1 if self._took("-") else 1
        return sign * self._whole(self._next("number"))

    def _whole(self, digits: str) -> int:
        try:
            if digits[:2] in ("0x", "0X"):
                return int(digits, 16)
            return int(digits, 8 if digits[0] == "0" else 10)
        except ValueError:
            raise self._error(f"has {excerpt(digits)} where a whole number should be") from None

    def _strings(self) -> bytes:
        data = unescaped(self._next("string")[1:-1])
        while self._peek()[:1] in ("'", '"'):
            data += unescaped(self._next("string")[1:-1])
        return data


WELL_KNOWN = {
    "google/protobuf/timestamp.proto": "message Timestamp { int64 seconds = 1; int32 nanos = 2; }",
    "google/protobuf/duration.proto": "message Duration { int64 seconds = 1; int32 nanos = 2; }",
    "google/protobuf/any.proto": "message Any { string type_url = 1; bytes value = 2; }",
    "google/protobuf/empty.proto": "message Empty {}",
    "google/protobuf/field_mask.proto": "message FieldMask { repeated string paths = 1; }",
    "google/protobuf/struct.proto": """
        message Struct { map<string, Value> fields = 1; }
        message Value {
          oneof kind {
            NullValue null_value = 1; double number_value = 2; string string_value = 3; bool bool_value = 4;
            Struct struct_value = 5; ListValue list_value = 6;
          }
        }
        enum NullValue { NULL_VALUE = 0; }
        message ListValue { repeated Value values = 1; }""",
    "google/protobuf/wrappers.proto": """
        message DoubleValue { double value = 1; } message FloatValue { float value = 1; }
        message Int64Value { int64 value = 1; } message UInt64Value { uint64 value = 1; }
        message Int32Value { int32 value = 1; } message UInt32Value { uint32 value = 1; }
        message BoolValue { bool value = 1; } message StringValue { string value = 1; }
        message BytesValue { bytes value = 1; }""",
    "google/type/date.proto": "message Date { int32 year = 1; int32 month = 2; int32 day = 3; }",
    "google/type/timeofday.proto": """
        message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }""",
    "google/type/money.proto": "message Money { string currency_code = 1; int64 units = 2; int32 nanos = 3; }",
    "google/type/latlng.proto": "message LatLng { double latitude = 1; double longitude = 2; }",
    "confluent/type/decimal.proto": "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }",
}
"""Files that are everywhere, so that registries do not keep them: the messages in them that values have."""


@cache
def well_known() -> tuple[DeclaredFile, ...]:
    """The files of WELL_KNOWN."""
    return tuple(
        parsed(name, f'syntax = "proto3"; package {name.rpartition("/")[0].replace("/", ".")}; {text}')
        for name, text in WELL_KNOWN.items()
    )
