"""Spark's DDL and a schema's JSON are read as Spark's own parser reads them."""

from __future__ import annotations

import json
import time
from random import Random

import json_samples
import pytest
from pyspark.sql.types import DataType, StructField, StructType

from spark_kafka_group.executor.schemas.ddl import DdlError, schema_of

TEXTS = (
    "a INT", "int", "INT ",
    "a INT, b STRUCT<c: STRING>, d DECIMAL(10,2) NOT NULL COMMENT 'x', `odd name` ARRAY<MAP<STRING,DOUBLE>>",
    "a: int", "struct<a:int>", "struct<a int not null comment 'q'>", "struct<>", "struct< >", "array<int",
    "map<int,boolean>>", "", " ", "a", "a int,", ",a int", "a int b int", "a int comment 'it''s'",
    "a int comment 'it\\'s'", "a int comment \"q\"", "a int comment 'a' 'b'", "a int comment r'x\\n'",
    "a int comment 'x\\n\\u0041\\101\\%'", "a int comment x", "a int not null not null",
    "a int comment 'x' not null", "a int null", "1a int", "1 int", "1e5 int", "1d int", "1L int", "a-b int",
    "a.b int", "`a.b` int", "`` int", "`a``b` int", "na\u00efve int", "select int", "from int, table string",
    "left int", "time int", "timestamp timestamp", "array array<int>", "a interval day to second",
    "a interval month to year", "a interval day to day", "decimal", "decimal(5)", "decimal(5,6)", "decimal(39,1)",
    "decimal(5,-2)", "decimal()", "decimal(5,2,1)", "dec(3)", "numeric(4,1)", "int(5)", "char", "char(5)",
    "varchar(7)", "varchar", "timestamp_ntz", "timestamp_ltz", "timestamp with time zone",
    "timestamp without time zone", "timestamp with local time zone", "time", "time(3)", "time(9)", "time(10)",
    "time without time zone", "real", "byte", "tinyint", "void", "null", "variant", "object", "bool", "text",
    "double precision", "float(3)", "a int -- comment\n, b int", "a /* x */ int", "a int /* y",
    "a\tint\n,\r\nb\u00a0int", "a int;", "a int default 5", "A int, a int", "struct<a : int>", "struct<a:int,>",
    "map<string>", "array<>", "array", "array <int>", "array<array<array<int>>>", "a int comment ''",
    "a int comment", "a not null", "a `int`", "a int comment '\u00fc\U0001f600'", "_ int", "a$ int", "'a' int",
    "not int", "comment int comment 'x'", "interval second", "a int:", "0x1 int", "1_000 int", "1e int", "1bd int",
    "a int COMMENT \"x\"\"y\"", "a int COMMENT 'x\\qy'", "a int COMMENT 'x\\Zy\\0\\_'",
    "a int comment '\\U0001F600'",
)  # fmt: skip
PIECES = (*"<>(),:`'\" 1a\u00e9-.\\/*", "not null", "comment 'x'", "int", "array<")


def random_texts(seed: int, count: int) -> list[str]:
    """Texts of random schemas, and damaged ones of the list."""
    rng = Random(seed)
    found = []
    for _ in range(count):
        kind = json_samples.root(rng)
        text = kind.simpleString() if rng.random() < 0.3 and plain_names(kind) else ddl_of(kind)
        if rng.random() < 0.6:
            text = rng.choice(TEXTS) + rng.choice(("", ", ")) + rng.choice(TEXTS)
            for _ in range(rng.choice((0, 1, 2))):
                at = rng.randint(0, len(text))
                text = text[:at] + rng.choice(PIECES) + text[at + rng.randint(0, 2) :]
        found.append(text)
    return found


def plain_names(kind: DataType) -> bool:
    return kind.simpleString().isascii() and not set("`. ") & set(kind.simpleString())


def ddl_of(kind: DataType) -> str:
    """A struct's columns with names in backticks; the simple text of others, where names are plain."""
    if not isinstance(kind, StructType):
        return kind.simpleString() if plain_names(kind) else "ARRAY<INT>"
    return ", ".join(
        f"`{field.name}` {_nested(field.dataType)}{'' if field.nullable else ' NOT NULL'}" for field in kind.fields
    )


def _nested(kind: DataType) -> str:
    if isinstance(kind, StructType):
        return f"STRUCT<{', '.join(f'`{field.name}`: {_nested(field.dataType)}' for field in kind.fields)}>"
    if hasattr(kind, "elementType"):
        return f"ARRAY<{_nested(kind.elementType)}>"
    if hasattr(kind, "keyType"):
        return f"MAP<{_nested(kind.keyType)}, {_nested(kind.valueType)}>"
    return kind.simpleString()


def compare(spark, texts) -> int:
    """How many of the texts are schemas."""
    java = spark._jvm.org.apache.spark.sql.types.DataType
    schemas = 0
    for text in texts:
        try:
            theirs = json.loads(java.fromDDL(text).json())
            schemas += 1
        except Exception:  # noqa: BLE001
            theirs = None
        try:
            own = json.loads(schema_of(text).json())
        except DdlError:
            own = None
        assert own == theirs, text
    return schemas


def test_texts_are_read_or_refused_as_spark_does(spark) -> None:
    assert compare(spark, [*TEXTS, *random_texts(1, 60)]) > 80


@pytest.mark.soak
def test_thousands_of_random_types_are_read_as_spark_reads_them(spark) -> None:
    assert compare(spark, random_texts(2, 6000)) > 2000


def test_the_json_of_a_schema_gives_the_schema() -> None:
    rng = Random(4)
    for _ in range(100):
        kind = json_samples.root(rng)
        assert schema_of(kind.json()) == kind
    field = StructField("a", schema_of("int"), False, {"comment": "x", "n": 1})
    assert schema_of(StructType([field]).json()) == StructType([field])


def test_random_schemas_come_back_from_their_text() -> None:
    rng = Random(5)
    for _ in range(100):
        kind = json_samples.schema(rng)
        assert schema_of(ddl_of(kind)).simpleString() == kind.simpleString()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            str(StructType([StructField("a", DataType())])),
            "is a type as Python shows it: give the type",
        ),
        ("a FOO", "at character 3 there is FOO, where a type, as INT, STRING,"),
        ("a INT b", "at character 7 there is b, where a comma and another column, or the end is expected"),
        ("array<int", "at character 10 the text ends, where > is expected"),
        ("a-b INT", "at character 2 there is -, where a type is expected"),
        ("a DECIMAL(50,2)", r"DECIMAL\(50,2\) is no type: the precision is at most 38"),
        ("a STRING COLLATE unicode", "STRING COLLATE UNICODE: a column of values has no collation, so write STRING"),
        ("a VARCHAR", r"VARCHAR needs a length, as VARCHAR\(10\), or use STRING"),
        ("{", "begins as JSON does, and is none"),
        ('{"type":"udt","class":"os","pyClass":"os.system"}', 'has the type "udt"'),
        ('{"type":"struct"}', "the schema needs the member fields"),
        ('{"type":"struct","fields":[{"name":"a","type":"foo","nullable":true}]}', "the field a has the type foo"),
        ("[" * 10, "there is"),
        ("array<" * 3000, "is nested deeper than 100 types"),
        ('{"type":"array","elementType":' * 3000, "begins as JSON does"),
        ("x" * 1_000_001, "is too long"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(text: str, why: str) -> None:
    with pytest.raises(DdlError, match=why) as raised:
        schema_of(text)
    assert len(str(raised.value)) < 400


def test_a_long_text_takes_as_long_as_its_length() -> None:
    started = time.process_time()
    assert len(schema_of(", ".join(f"f{at} INT" for at in range(10_000)))) == 10_000
    size = 30_000
    for part in ("'", "`", "'x' ", "/*", "/*x", "-- \n", "<", "'`\"", "\\'", "r'\\", "array<"):
        with pytest.raises(DdlError):
            schema_of("a " + part * (size // len(part)) + "!")
    assert time.process_time() - started < 5
