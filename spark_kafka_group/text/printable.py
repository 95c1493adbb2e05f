"""Text as it may be shown: without characters that control a terminal, without secrets, and as a user wrote it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any


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


class AsWritten(argparse.Action):
    """Keeps a value, and under ``<dest>_as_written`` which spelling of the argument it had, for errors."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        setattr(namespace, self.dest, values)
        setattr(namespace, f"{self.dest}_as_written", option_string)
