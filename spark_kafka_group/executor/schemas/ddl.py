"""Spark's DDL text, and a schema's JSON, to Spark's types, without a JVM.

What is read is what from_json's schema may be: a type, or columns (``a INT, b STRUCT<c: STRING> COMMENT 'x'``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CalendarIntervalType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
    VarcharType,
    VariantType,
    YearMonthIntervalType,
)

MAX_CHARACTERS = 1_000_000
MAX_DEPTH = 100
MAX_PRECISION = 38
MAX_TIME_DIGITS = 9
DEFAULT_DECIMAL = (10, 0)
COLLATIONS = "__COLLATIONS"
SHOWN = 40

SIMPLE: dict[str, Callable[[], DataType]] = {
    "bigint": LongType,
    "binary": BinaryType,
    "boolean": BooleanType,
    "byte": ByteType,
    "date": DateType,
    "double": DoubleType,
    "float": FloatType,
    "int": IntegerType,
    "integer": IntegerType,
    "long": LongType,
    "real": FloatType,
    "short": ShortType,
    "smallint": ShortType,
    "string": StringType,
    "time": TimeType,
    "timestamp": TimestampType,
    "timestamp_ltz": TimestampType,
    "timestamp_ntz": TimestampNTZType,
    "tinyint": ByteType,
    "variant": VariantType,
    "void": NullType,
}
IN_JSON: dict[str, Callable[[], DataType]] = {
    **{
        name: SIMPLE[name]
        for name in ("binary", "boolean", "byte", "date", "double", "float", "integer", "long", "short")
    },
    **{name: SIMPLE[name] for name in ("string", "timestamp", "timestamp_ltz", "timestamp_ntz", "variant", "void")},
    "decimal": lambda: DecimalType(*DEFAULT_DECIMAL),
    "interval": CalendarIntervalType,
    "null": NullType,
}
DAY_TIME = ("day", "hour", "minute", "second")
YEAR_MONTH = ("year", "month")

SPACE = r"\ \t-\r\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"

_token = re.compile(
    rf"""(?P<space> (?: [{SPACE}]+ | --[^\r\n]*\r?\n? | /\*.*?\*/ )+ )
      | (?P<quoted> `(?:[^`]|``)*` )
      | (?P<text> [rR]?(?: '[^'\\]*(?:\\.[^'\\]*)*' | "[^"\\]*(?:\\.[^"\\]*)*" ) )
      | (?P<word> [0-9A-Za-z_]+ )
      | (?P<open> (?: /\* | [`'"] ).* )
      | (?P<mark> <> | . )""",
    re.VERBOSE | re.DOTALL,
)
_shown_type = re.compile(r"\s*(?:Struct|Array|Map)Type\(").match
_number = re.compile("[0-9]+").fullmatch
_literal = re.compile(r"[0-9]+(?:[lLsSyYdDfF]|[bB][dD]|[eE][0-9]+(?:[dDfF]|[bB][dD])?)?").fullmatch
_escape = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL)
_json_decimal = re.compile(r"decimal\(\s*(\d{1,9})\s*,\s*(-?\d{1,9})\s*\)").fullmatch
_json_time = re.compile(r"time\(\s*(\d{1,9})\s*\)").fullmatch
_json_length = re.compile(r"(char|varchar)\(\s*(\d{1,9})\s*\)").fullmatch
_json_interval = re.compile(r"interval (\w+)(?: to (\w+))?").fullmatch
ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


class DdlError(ValueError):
    """Raised when a text is no type of a column, in one sentence that says where, and what to write."""


@dataclass(frozen=True, slots=True)
class _Token:
    """A token of DDL text, and where it begins."""

    kind: str
    text: str
    at: int


def schema_of(text: str) -> DataType:
    """The type that `text` names: a schema's JSON, a type, or columns, as from_json tries them.

    Raises
    ------
    DdlError
    """
    if len(text) > MAX_CHARACTERS:
        raise DdlError(f"a schema of {len(text)} characters is too long: at most {MAX_CHARACTERS}")
    if _shown_type(text):
        raise DdlError(f"{shortened(text)} is a type as Python shows it: give the type's json(), as schema.json()")
    if text.lstrip()[:1] in ("{", '"'):
        return _from_json(text)
    tokens = _tokens(text)
    try:
        return _DdlReader(text, tokens).only_type()
    except DdlError as as_type:
        try:
            return _DdlReader(text, tokens).only_columns()
        except DdlError as as_columns:
            # a text that begins as a type does, as `array<`, is meant as a type
            begins = tokens[0].text.lower() in {*SIMPLE, "array", "map", "struct", "decimal", "interval"}
            raise (as_type if begins else as_columns) from None


def _tokens(text: str) -> list[_Token]:
    found = [
        _Token(str(match.lastgroup), match[0], match.start())
        for match in _token.finditer(text)
        if match.lastgroup != "space"
    ]
    return [*found, _Token("end", "", len(text))]


class _DdlReader:
    """Reads tokens from the first on."""

    def __init__(self, text: str, tokens: list[_Token]) -> None:
        self._source = text
        self._tokens = tokens
        self._at = 0

    def only_type(self) -> DataType:
        found = self._type(1)
        self._end("the end of the type")
        return found

    def only_columns(self) -> StructType:
        fields = [self._column(colon=False, depth=1)]
        while self._take(","):
            fields.append(self._column(colon=False, depth=1))
        self._end("a comma and another column, or the end")
        return StructType(fields)

    def _end(self, expected: str) -> None:
        if self._next.kind != "end":
            raise self._wrong(expected)

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self, text: str) -> bool:
        """Whether the next token is this word or mark; it is read then."""
        token = self._next
        if token.kind in ("word", "mark") and token.text.lower() == text:
            self._at += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise self._wrong(text)

    def _wrong(self, expected: str) -> DdlError:
        token = self._next
        found = "the text ends" if token.kind == "end" else f"there is {shortened(token.text)}"
        return DdlError(
            f"the schema {shortened(self._source)} cannot be read: at character {token.at + 1} {found}, where "
            f"{expected} is expected"
        )

    # --- columns ------------------------------------------------------------------------------------------------------

    def _column(self, colon: bool, depth: int) -> StructField:
        name = self._name()
        if colon:
            self._take(":")
        kind = self._type(depth + 1)
        nullable = True
        if self._take("not"):
            self._expect("null")
            nullable = False
        metadata = None
        if self._take("comment"):
            metadata = {"comment": self._string()}
        return StructField(name, kind, nullable, metadata)

    def _name(self) -> str:
        token = self._next
        if token.kind == "quoted":
            self._at += 1
            return token.text[1:-1].replace("``", "`")
        if token.kind == "word" and not _literal(token.text):
            self._at += 1
            return token.text
        raise self._wrong("a name, in `backticks` unless it has only letters, digits and _,")

    def _string(self) -> str:
        """Texts next to each other are one."""
        if self._next.kind != "text":
            raise self._wrong("a text in quotes")
        parts = []
        while (token := self._next).kind == "text":
            self._at += 1
            parts.append(token.text[2:-1] if token.text[0] in "rR" else _escape.sub(_unescaped, token.text[1:-1]))
            if self._next.kind == "text" and self._next.text[0] == token.text[0] == token.text[-1]:
                # a quote that is written twice is a quote where the two texts touch
                parts.extend(token.text[0] for _ in range(self._next.at == token.at + len(token.text)))
        return "".join(parts)

    # --- types --------------------------------------------------------------------------------------------------------

    def _type(self, depth: int) -> DataType:
        if depth > MAX_DEPTH:
            raise DdlError(f"the schema {shortened(self._source)} is nested deeper than {MAX_DEPTH} types")
        token = self._next
        name = token.text.lower()
        if token.kind != "word":
            raise self._wrong("a type")
        self._at += 1
        match name:
            case "array":
                self._expect("<")
                element = self._type(depth + 1)
                self._expect(">")
                return ArrayType(element)
            case "map":
                self._expect("<")
                key = self._type(depth + 1)
                self._expect(",")
                value = self._type(depth + 1)
                self._expect(">")
                return MapType(key, value)
            case "struct":
                return self._struct(depth)
            case "interval":
                return self._interval()
            case "decimal" | "dec" | "numeric":
                return self._decimal(token)
            case "char" | "character" | "varchar":
                return self._text_of_length(token)
        return self._simple(name, token)

    def _struct(self, depth: int) -> StructType:
        if self._take("<>"):
            return StructType([])
        self._expect("<")
        if self._take(">"):
            return StructType([])
        fields = [self._column(colon=True, depth=depth)]
        while self._take(","):
            fields.append(self._column(colon=True, depth=depth))
        self._expect(">")
        return StructType(fields)

    def _interval(self) -> DataType:
        for units, make in ((DAY_TIME, DayTimeIntervalType), (YEAR_MONTH, YearMonthIntervalType)):
            for first, unit in enumerate(units):
                if self._take(unit):
                    return make(first, self._until(units, first))
        return CalendarIntervalType()

    def _until(self, units: tuple[str, ...], first: int) -> int:
        if not self._take("to"):
            return first
        for last in range(first + 1, len(units)):
            if self._take(units[last]):
                return last
        raise self._wrong("a smaller unit of the interval")

    def _simple(self, name: str, token: _Token) -> DataType:
        make = SIMPLE.get(name)
        if make is None:
            self._at -= 1
            raise self._wrong(
                "a type, as INT, STRING, DECIMAL(10,2), TIMESTAMP, ARRAY<INT>, MAP<STRING,INT> or STRUCT<a: INT>,"
            )
        if name == "time":
            (precision,) = self._numbers() or (6,)
            if precision > MAX_TIME_DIGITS:
                raise DdlError(f"TIME({precision}) has more than {MAX_TIME_DIGITS} digits of a second")
            self._with_zone(with_zone=False)
            return TimeType(precision)
        if name == "string" and self._take("collate") and (collation := self._name().upper()) != "UTF8_BINARY":
            raise DdlError(f"STRING COLLATE {collation}: a column of values has no collation, so write STRING")
        if name == "timestamp" and (zone := self._with_zone(with_zone=True)) is not None:
            return TimestampType() if zone else TimestampNTZType()
        return make()

    def _with_zone(self, with_zone: bool) -> bool | None:
        """Whether WITH LOCAL TIME ZONE, which `with_zone` allows, or WITHOUT TIME ZONE follows; None for neither."""
        zone = with_zone and self._take("with")
        if not zone and not self._take("without"):
            return None
        for word in ("local", "time", "zone")[not zone :]:
            self._expect(word)
        return zone

    def _decimal(self, token: _Token) -> DecimalType:
        given = self._numbers()
        if len(given) > 2:
            self._at -= 1
            raise self._wrong("at most a precision and a scale")
        precision, scale = (*given, 0)[:2] if given else DEFAULT_DECIMAL
        return _decimal_type(precision, scale)

    def _text_of_length(self, token: _Token) -> DataType:
        given = self._numbers()
        if len(given) != 1:
            raise DdlError(f"{token.text.upper()} needs a length, as {token.text.upper()}(10), or use STRING")
        return VarcharType(given[0]) if token.text.lower() == "varchar" else CharType(given[0])

    def _numbers(self) -> tuple[int, ...]:
        """Integers in parentheses, if a parenthesis follows."""
        if not self._take("("):
            return ()
        found = [self._integer()]
        while self._take(","):
            found.append(self._integer())
        self._expect(")")
        return tuple(found)

    def _integer(self) -> int:
        token = self._next
        if token.kind != "word" or not _number(token.text) or len(token.text) > 9:
            raise self._wrong("a small number")
        self._at += 1
        return int(token.text)


def _unescaped(found: re.Match[str]) -> str:
    four, eight, octal, char = found.groups()
    if four or eight:
        code = int(four or eight, 16)
        return chr(code) if code < 0x110000 else "\ufffd"
    return chr(int(octal, 8)) if octal else ESCAPED.get(char, char)


def _decimal_type(precision: int, scale: int) -> DecimalType:
    if not 0 <= scale <= precision <= MAX_PRECISION:
        raise DdlError(
            f"DECIMAL({precision},{scale}) is no type: the precision is at most {MAX_PRECISION}, and the scale at most "
            f"the precision"
        )
    return DecimalType(precision, scale)


# --- a schema's JSON --------------------------------------------------------------------------------------------------


def _from_json(text: str) -> DataType:
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise DdlError(f"the schema {shortened(text)} begins as JSON does, and is none: {why}") from None
    return _json_type(given, "the schema", 1)


def _json_type(given: Any, place: str, depth: int) -> DataType:
    if depth > MAX_DEPTH:
        raise DdlError(f"{place} is nested deeper than {MAX_DEPTH} types")
    if isinstance(given, str):
        return _json_simple(given, place)
    kind = given.get("type") if isinstance(given, dict) else None
    if kind == "struct":
        return StructType([_json_field(field, place, depth) for field in _member(given, "fields", list, place)])
    if kind == "array":
        element = _json_type(given.get("elementType"), f"an element of {place}", depth + 1)
        return ArrayType(element, _member(given, "containsNull", bool, place))
    if kind == "map":
        key = _json_type(given.get("keyType"), f"a key of {place}", depth + 1)
        value = _json_type(given.get("valueType"), f"a value of {place}", depth + 1)
        return MapType(key, value, _member(given, "valueContainsNull", bool, place))
    found = shortened(json.dumps(kind if isinstance(given, dict) else given))
    raise DdlError(
        f'{place} has the type {found}: it has to be a name, or an object whose "type" is struct, array or map'
    )


def _json_field(given: Any, place: str, depth: int) -> StructField:
    if not isinstance(given, dict):
        raise DdlError(f"a field of {place} is no object with name, type, nullable and metadata")
    name = _member(given, "name", str, f"a field of {place}")
    here = f"the field {shortened(name)}"
    metadata = given.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise DdlError(f"{here} has metadata that are no object")
    if COLLATIONS in metadata:
        raise DdlError(f"{here} has a collation, and a column of values has none: leave {COLLATIONS} out")
    nullable = _member(given, "nullable", bool, here)
    return StructField(name, _json_type(given.get("type"), here, depth + 1), nullable, metadata)


def _member(given: dict[str, Any], name: str, kind: type, place: str) -> Any:
    found = given.get(name)
    if not isinstance(found, kind):
        raise DdlError(f"{place} needs the member {name}, as {StructType.__name__}.json() writes it")
    return found


def _json_simple(name: str, place: str) -> DataType:
    make = IN_JSON.get(name)
    if make is not None:
        return make()
    if found := _json_decimal(name):
        return _decimal_type(int(found[1]), int(found[2]))
    if (found := _json_time(name)) and int(found[1]) <= MAX_TIME_DIGITS:
        return TimeType(int(found[1]))
    if found := _json_length(name):
        return VarcharType(int(found[2])) if found[1] == "varchar" else CharType(int(found[2]))
    if found := _json_interval(name):
        for units, interval in ((DAY_TIME, DayTimeIntervalType), (YEAR_MONTH, YearMonthIntervalType)):
            ends = (found[1], found[2] or found[1])
            if all(end in units for end in ends) and units.index(ends[0]) <= units.index(ends[1]):
                return interval(units.index(ends[0]), units.index(ends[1]))
    raise DdlError(
        f"{place} has the type {shortened(name)}, which is none of Spark's: write it as Spark's schema.json() does"
    )


def shortened(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
