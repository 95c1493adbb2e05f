"""docs/troubleshooting.md quotes messages as the code has them."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from spark_kafka_group.wire.reactions import ADVICE, REACTIONS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/troubleshooting.md").read_text()
QUOTED = re.findall(
    r"^\| (.*) \| .* \|$",
    "\n".join(table for table in re.findall(r"\| message \| cause and remedy \|\n\|---\|---\|\n((?:\|.*\n)+)", PAGE)),
    re.MULTILINE,
)
MESSAGES = [
    (message, mark)
    for quoted in QUOTED
    for message, mark in re.findall(r"`([^`]+)`(?: \((Spark's|Python's)\))?", quoted)
]
ANY = "…"


def text_of(node):
    """A text of the code, with … for the values in it; None for what is no text."""
    match node:
        case ast.Constant(value=str(text)):
            return re.sub(r"%[sdr]|%\.\df|\{[\w.]*\}", ANY, text)
        case ast.JoinedStr(values=values):
            return "".join(ANY if isinstance(value, ast.FormattedValue) else value.value for value in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return (text_of(left) or ANY) + (text_of(right) or ANY)
    return None


@cache
def texts():
    """All texts of the package."""
    files = [ROOT / "setup.py", *(ROOT / "spark_kafka_group").rglob("*.py")]
    trees = [ast.parse(file.read_text()) for file in files]
    return {text for tree in trees for node in ast.walk(tree) if (text := text_of(node))}


def words(message):
    """Words of a message between its names and numbers, where some texts of the code are put together."""
    return [part for piece in message.split(ANY) if len(part := piece.strip(" :;,()[]")) > 2]


def in_the_code(message):
    if message in REACTIONS or message in ADVICE:
        return True
    return all(any(part in text for text in texts()) for part in words(message))


@pytest.mark.parametrize("message", [message for message, mark in MESSAGES if not mark])
def test_a_message_is_in_the_code(message):
    assert in_the_code(message)


def test_a_message_that_is_nowhere_is_seen():
    assert in_the_code("another process has joined with this query's group.instance.id")
    assert not in_the_code("another process has joined with this query's group.instance.ids")


def test_most_rows_quote_one():
    assert len(QUOTED) > 35
    assert len(MESSAGES) >= len(QUOTED)
