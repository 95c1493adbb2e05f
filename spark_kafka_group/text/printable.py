"""Text as it may be shown: without characters of others that control a terminal, and without secrets."""

from __future__ import annotations

from dataclasses import dataclass


def printable(text: str) -> str:
    r"""`text` with escapes for characters that break a line, control a terminal or reverse text: ``\x1b``, ``\n``."""
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


@dataclass(frozen=True, repr=False)
class Secret:
    """A password or a key. Shows nothing of itself wherever it is printed, logged or formatted."""

    text: str

    def __repr__(self) -> str:
        return "Secret(hidden)"
