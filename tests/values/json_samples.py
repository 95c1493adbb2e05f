"""JSON documents for tests: of random schemas, odd in their values, and damaged."""

from __future__ import annotations

import base64
import json
from random import Random

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

SIMPLE = (
    BinaryType(),
    BooleanType(),
    ByteType(),
    DateType(),
    DecimalType(10, 2),
    DecimalType(38, 18),
    DecimalType(5, 0),
    DecimalType(3, 3),
    DoubleType(),
    FloatType(),
    IntegerType(),
    LongType(),
    ShortType(),
    StringType(),
    TimestampNTZType(),
    TimestampType(),
)
NAMES = ("a", "b", "id", "ID", "naïve", "x.y", "a b", "ключ", "ts", "v_1")

INTEGERS = (
    "0", "1", "-1", "-0", "7", "42", "127", "128", "-128", "-129", "200", "255", "256", "32767", "32768", "-32769",
    "2147483647", "2147483648", "-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "-9223372036854775809", "123456789012345678901234567890", "1234567890123456789", "99999",
    "100000", "9007199254740993", "16777217", "9223371488140099584", "00", "01", "-01", "1_0",
)  # fmt: skip
FLOATS = (
    "0.0", "-0.0", "1.5", "1.50", "-2.25", "0.1", "123.456", "1e5", "1E5", "1e+5", "1e-5", "1.5e3", "0.005", "0.015",
    "2.675", "1e308", "1e309", "-1e309", "1e-400", "4.9e-324", "123456789.123456789", "99999999.995", "12345678.905",
    "0.9995", "0.9994", "1.17549435e-38", "3.4028235e38", "3.4028236e38", "7e-46", "0.30000000000000004",
    "100000000000000000000.5", "16777217.0", "1.", ".5", "1.e5", "1e", "1e+", "-.5", "-1.", "1.5.5", "0x10", "1d",
    "1.0f", "99999.5", "9.5e-1",
)  # fmt: skip
WORDS = (
    "true", "false", "null", "NaN", "Infinity", "-Infinity", "+Infinity", "-INF", "+INF", "INF", "True", "nul",
    "nan", "trueish", "undefined", "None",
)  # fmt: skip
DATES = (
    "2020-02-29", "2021-02-29", "1970-01-01", "0001-01-01", "9999-12-31", "10000-01-01", "-0001-01-01", "2020-1-1",
    "2020", "2020-01", " 2020-01-02 ", "2020-01-02T", "2020-01-02T10", "2020-01-02 anything", "2020-13-01",
    "2020-00-01", "123", "-5", "+7", "-200000", "-150000", "12345", "99999999", "2147483648", "1582-10-10",
    "20-01-01", "2020-01-01Z", "2020/01/01", "GMT2020-01-01", "1234567-01-01", "9999999-01-01", "2020-01-01\u00a0",
    "\u0662\u0660", "0000-01-01", "0000-02-29",
)  # fmt: skip
TIMES = (
    "2020-01-02T03:04:05Z", "2020-01-02 03:04:05", "2020-01-02T03:04:05.123456789Z", "2020-01-02T03:04:05.1+02:00",
    "2020-01-02T03:04:05+0200", "2020-01-02T03:04:05-08", "2020-01-02T03:04:05 Europe/Paris",
    "2020-01-02T03:04:05Europe/Nowhere", "2020-01-02T03:04:05 PST", "2020-01-02T03:04:05 UTC+3",
    "2020-01-02T03:04:05GMT+01:00", "2020-01-02T03:04", "2020-01-02T3:4:5", "2020-01-02T24:00:00",
    "2020-01-02T23:59:60", "2020-03-29T02:30:00", "2020-10-25T02:30:00", "2020-10-25T01:59:59.999",
    "1850-01-01T00:00:00", "0001-01-01T00:00:00", "9999-12-31T23:59:59.999999", "12000-06-01T00:00:00",
    "-0044-03-15T12:00:00", "294247-01-10T04:00:54.775807Z", "294247-01-10T04:00:54.775808Z",
    "-290308-12-21T19:59:06Z", "2050-07-01T00:00:00", "2020-01-02T03:04:05.", "2020-01-02T03:04:05.5 Z",
    "2020-01-02T03:04:05+1:5", "2020-01-02T03:04:05+19:00", "1e3", "2020-01-02t03:04:05z", "2020-01-02T03:04:05EST",
    "2020-01-02T03:04:05+01:02:03", "2020-01-02T03:04:05UT", "2020-01-02T03:04:05UTC+01:0",
)  # fmt: skip
TEXTS = (
    "", " ", "x", "héllo", "日本", "😀", "a\"b\\c/d", "\b\f\n\r\t\u0001\u007f", "\u2028", "NaN", "Infinity", "-INF",
    "true", "null", "{}", "[1]", "1", "-1.5", "1,234.56", "1e2", "+5", " 5", "5 ", "1.", ".5", "--1", "\u0661",
    "1e99999999999", "1e-5", "0.005", "99999.5",
)  # fmt: skip
BASE64 = (
    "",
    "aGk=",
    "aGk",
    "a",
    "aGkh",
    "aGkhIQ==",
    "aGkhIQ=",
    "aG k=",
    " aGkh aGkh ",
    "aGk=aGk=",
    "_-8=",
    "+/8=",
    "=",
    "====",
    "a===",
    "aGk\n",
)
ODD_VALUES = (
    "'x'", "'it\\'s'", '"\\ud83d\\ude00"', '"\\ud800"', '"\\udc00x"', '"\\u00"', '"\\q"', '"\\u0000"', "'a\"b'",
    "{}", "[]", "[[]]", '{"k":1}', '{"k":{"l":[1,2.50,"x",null,true,NaN]}}', "[1,2]", '[{"a":1}]', "[1,]", "[,1]",
    '{"k":1,}', "{,}", '{"k"}', "{1:2}", "{'k':1}", "/*c*/1", "#", '"a" "b"', "1 2", '{"k":01}', '{"k":"\\q"}',
    '{"k":tru}', "[01]", "[1 2]", '{"k" 1}', "{k:1}", '["\\ud800","é","😀"]', '{"é😀\\u0001":"\\/"}',
    "[1e5,1E-7,0.001,1e7,123456.5,-0.0,-0,1e400,100]", '"',
)  # fmt: skip
SPACES = ("", "", "", "", " ", "\n", "\t\r\n ", "\x0b", "\u00a0", "\ufeff", "\x00")


def schema(rng: Random, depth: int = 0) -> StructType:
    names = rng.sample(NAMES, rng.randint(1, 5))
    return StructType([StructField(name, data_type(rng, depth + 1), rng.random() < 0.8) for name in names])


def data_type(rng: Random, depth: int = 0):
    kind = rng.random() if depth < 4 else 1.0
    if kind < 0.1:
        return schema(rng, depth + 1)
    if kind < 0.2:
        return ArrayType(data_type(rng, depth + 1), rng.random() < 0.8)
    if kind < 0.3:
        return MapType(StringType(), data_type(rng, depth + 1), rng.random() < 0.8)
    return rng.choice(SIMPLE)


def root(rng: Random):
    kind = rng.random()
    if kind < 0.8:
        return schema(rng)
    return ArrayType(data_type(rng, 1)) if kind < 0.9 else MapType(StringType(), data_type(rng, 1))


def quoted(rng: Random, text: str) -> str:
    return json.dumps(text, ensure_ascii=rng.random() < 0.3)


def space(rng: Random, odd: float) -> str:
    return rng.choice(SPACES if rng.random() < odd else SPACES[:7])


def any_value(rng: Random) -> str:
    kind = rng.randrange(8)
    lists = (INTEGERS, FLOATS, WORDS, ODD_VALUES)
    if kind < 4:
        return rng.choice(lists[kind])
    return quoted(rng, rng.choice((DATES, TIMES, TEXTS, BASE64)[kind - 4]))


def value(rng: Random, spark, odd: float) -> str:
    """The text of a value that fits, or mostly."""
    if rng.random() < odd:
        return any_value(rng)
    if rng.random() < 0.05:
        return "null"
    if isinstance(spark, StructType):
        return struct(rng, spark, odd)
    if isinstance(spark, ArrayType):
        items = (value(rng, spark.elementType, odd) for _ in range(rng.choice((0, 1, 1, 2, 5))))
        return f"[{space(rng, odd)}{','.join(items)}{space(rng, odd)}]"
    if isinstance(spark, MapType):
        entries = (
            f"{quoted(rng, rng.choice(NAMES + TEXTS[:10]))}:{value(rng, spark.valueType, odd)}"
            for _ in range(rng.choice((0, 1, 1, 2, 5)))
        )
        return f"{{{','.join(entries)}}}"
    return simple(rng, spark, odd)


def simple(rng: Random, spark, odd: float) -> str:
    if isinstance(spark, BooleanType):
        return rng.choice(("true", "false"))
    if isinstance(spark, StringType):
        if rng.random() < odd + 0.1:
            return any_value(rng)
        return quoted(rng, rng.choice((*TEXTS, "a" * rng.randint(1, 40))))
    if isinstance(spark, BinaryType):
        return quoted(
            rng,
            base64.b64encode(rng.randbytes(rng.randrange(9))).decode() if rng.random() < 0.8 else rng.choice(BASE64),
        )
    if isinstance(spark, DateType):
        if rng.random() < 0.5:
            return quoted(rng, f"{rng.randint(1900, 2100)}-{rng.randint(1, 12):02}-{rng.randint(1, 29):02}")
        return quoted(rng, rng.choice(DATES))
    if isinstance(spark, (TimestampType, TimestampNTZType)):
        return timestamp(rng, spark)
    if isinstance(spark, DecimalType):
        text = (
            rng.choice((*INTEGERS[:20], *FLOATS[:30]))
            if rng.random() < 0.5
            else f"{rng.randint(-999, 99999)}.{rng.randint(0, 999):03}"
        )
        return f'"{text}"' if rng.random() < 0.2 else text
    if isinstance(spark, (FloatType, DoubleType)):
        return rng.choice(
            (
                repr(rng.uniform(-1e6, 1e6)),
                repr(rng.gauss(0, 1) * 10 ** rng.randint(-30, 30)),
                str(rng.randint(-(2**62), 2**62)),
                f"{rng.uniform(0, 1000):.3f}",
                rng.choice(FLOATS),
                '"NaN"',
            )
        )
    bits = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}[type(spark)]
    return str(rng.randint(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) >> rng.randrange(bits))


def timestamp(rng: Random, spark) -> str:
    if isinstance(spark, TimestampType) and rng.random() < 0.1:
        return str(rng.randint(-(10**13), 10**13))
    if rng.random() < 0.5:
        return quoted(rng, rng.choice(TIMES + DATES[:10]))
    text = f"{rng.randint(1850, 2100)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}{rng.choice('T ')}"
    text += f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:{rng.randint(0, 59):02}"
    if rng.random() < 0.5:
        text += f".{rng.randint(0, 10 ** rng.randint(1, 9))}"
    if isinstance(spark, TimestampType):
        text += rng.choice(("", "", "Z", "+01:00", "-07:30", " America/New_York"))
    return quoted(rng, text)


def struct(rng: Random, spark: StructType, odd: float) -> str:
    fields = [(field.name, value(rng, field.dataType, odd)) for field in spark.fields if rng.random() < 0.9]
    if rng.random() < 0.2:
        fields.append(
            (rng.choice(("zz", "unknown", "A")), any_value(rng) if rng.random() < odd else '{"x":[1,{"y":null}]}')
        )
    if rng.random() < odd and fields:
        fields.append((rng.choice(fields)[0], any_value(rng)))
    if rng.random() < 0.3:
        rng.shuffle(fields)
    inside = ",".join(
        f"{space(rng, odd)}{quoted(rng, name)}{space(rng, odd)}:{space(rng, odd)}{text}{space(rng, odd)}"
        for name, text in fields
    )
    return f"{{{inside}}}"


def document(rng: Random, spark, odd: float | None = None) -> bytes:
    """A document: half of them fit, others have odd values, or are damaged as bytes."""
    odd = rng.choice((0.0, 0.0, 0.1, 0.3)) if odd is None else odd
    data = value(rng, spark, odd).encode("utf-8", "surrogatepass")
    if rng.random() < odd:
        data = damaged(rng, data)
    if rng.random() < odd / 2:
        data += rng.choice((b" ", b"x", b"}", b"{}", b"\xff", b"\x00", b",", b" 1"))
    return data


PIECES = (
    b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\x00", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xe2\x82",
    b"\xf0\x9f\x98", b"'", b"0", b"\\u12", b"/", b"#", b" ", b"\n", b"1e", b"-", b"\xef\xbb\xbf", b"NaN", b"nul",
    b"\xc0\x80", b"\xf5", b"\xf4\x90\x80\x80", b"\xe0\x80",
)  # fmt: skip


def damaged(rng: Random, data: bytes) -> bytes:
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randint(0, len(data))
        kind = rng.randrange(4)
        if kind == 0:
            data = data[:at]
        elif kind == 1:
            data = data[:at] + rng.choice(PIECES) + data[at:]
        elif kind == 2:
            data = data[:at] + data[at + rng.randint(1, 3) :]
        else:
            data = data[:at] + rng.choice(PIECES) + data[at + 1 :]
    return data
