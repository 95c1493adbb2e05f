"""Shows text of other clients: names and metadata in Kafka may have characters that control a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""`text` with escapes for characters that break a line, control a terminal or reverse text: ``\x1b``, ``\n``."""
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
