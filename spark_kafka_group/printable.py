"""How text of others is shown: anybody may name and note anything in Kafka, also what steers a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""`text` with escapes for what breaks a line, steers a terminal or turns text round: ``\x1b``, ``\n``."""
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
