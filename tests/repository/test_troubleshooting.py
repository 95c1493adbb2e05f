"""Pages quote messages as the code has them, and link to the page of a remedy."""

import re
from functools import cache

import pytest
from messages import ANY, logged, raised, text_of, trees
from support.source_tree import ROOT, nodes, parsed

from spark_kafka_group.errors import NEW_CHECKPOINT
from spark_kafka_group.wire.reactions import ADVICE, REACTIONS

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


@cache
def texts():
    """All texts of the package, and of its build."""
    modules = [*trees().values(), parsed(ROOT / "setup.py")]
    return {text for tree in modules for node in nodes(tree) if (text := text_of(node))}


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


def test_whoever_advises_a_new_checkpoint_says_what_it_does_to_the_sink():
    """Errors have one text for it, and pages a link."""
    assert "a new output folder" in NEW_CHECKPOINT
    assert [text for text in [*raised(), *logged()] if "new checkpoint" in text.text] == []
    for page in (ROOT / "docs").glob("*.md"):
        if page.name != "guarantees.md":
            advice = [part for part in page.read_text().split("\n\n") if re.search(r"new checkpoint\b", part)]
            assert [part for part in advice if "(guarantees.md#a-new-checkpoint)" not in part] == []
