"""Bytes of strangers as a person can read them."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spark_kafka_group.text.foreign_text import is_deep, parsed, printable

LONGEST = 2_000  # the most characters that are shown of a value
LONGEST_JSON = 256 * 1024  # bytes of a value that is laid out as JSON; longer ones are text
UNPRINTABLE = 0.1  # the share of a text's characters that may be unprintable, from 0 to 1
OPENING, CLOSING = ("{", "["), ("}", "]")
NULL, JSON, TEXT, HEX = "null", "json", "text", "hex"

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


@dataclass(frozen=True)
class Decoded:
    """A key, a value, or a header's value.

    Attributes
    ----------
    kind
        ``json`` (objects and lists), ``text``, ``hex``, or ``null``.
    text
        At most 2,000 characters of it, which steer no terminal. JSON has lines and is indented by 2.
    size
        Bytes.
    cut
        Characters of the text (of hex: bytes) that are left out.
    """

    kind: str
    text: str
    size: int
    cut: int = 0

    def __str__(self) -> str:
        return f"{self.text} … {self.cut:,} more" if self.cut else self.text


def decoded(data: bytes | None) -> Decoded:
    """`data` as JSON, laid out; else as text; else in hexadecimal digits."""
    if data is None:
        return Decoded(NULL, "null", 0)
    if (laid_out := _json(data)) is not None:
        return _cut(JSON, laid_out, len(data), len(laid_out))
    if (text := _text(data[: 4 * LONGEST], len(data) <= 4 * LONGEST)) is not None:
        # Of a long value only the beginning is decoded: the rest is counted in bytes.
        return _cut(TEXT, printable(text), len(data), len(printable(text)) + max(0, len(data) - 4 * LONGEST))
    digits = LONGEST // 2
    return Decoded(HEX, data[:digits].hex(), len(data), max(0, len(data) - digits))


def _cut(kind: str, text: str, size: int, length: int) -> Decoded:
    return Decoded(kind, text[:LONGEST], size, max(0, length - LONGEST))


def _json(data: bytes) -> str | None:
    if len(data) > LONGEST_JSON or data.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        text = data.decode()
        parsed(text)
    except ValueError:
        return None
    return "".join(_laid_out(text))


def _laid_out(text: str) -> Iterator[str]:
    """JSON a member a line: its own digits, and keys that it has twice, stay."""
    depth, before = 0, ""
    for token in _TOKEN.findall(text):
        depth -= token in CLOSING
        if before == "," or (before in OPENING) != (token in CLOSING):
            yield "\n" + "  " * depth
        yield printable(token)
        if token == ":":
            yield " "
        depth += token in OPENING
        before = token


def _text(data: bytes, whole: bool) -> str | None:
    """`data` as text, whose last character may be cut off if it is not the `whole` of a value."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data, final=whole)
    except UnicodeDecodeError:
        return None
    odd = sum(not (character.isprintable() or character in "\t\r\n") for character in text)
    return text if odd <= UNPRINTABLE * len(text) else None


def json_objects(values: list[bytes | None]) -> list[str]:
    """Those of `values` that are JSON objects, as text in which no object has a key twice, as Spark's schemas would.

    Those that are nested deeply are left out: pyspark's schemas fail on them.
    """
    found = []
    for data in values:
        doubles: list[int] = []

        def last_ones(pairs: list[tuple[str, Any]], doubles: list[int] = doubles) -> dict[str, Any]:
            made = dict(pairs)
            doubles.append(len(pairs) - len(made))
            return made

        try:
            text = (data or b"").decode()
            value = json.loads(text, object_pairs_hook=last_ones)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and not is_deep(value):
            found.append(json.dumps(value) if any(doubles) else text)
    return found
