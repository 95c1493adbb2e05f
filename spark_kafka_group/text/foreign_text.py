"""Text of users, files and other members: JSON, read or refused with the reason; and text as it may be shown.

What is shown has no characters that control a terminal, no secrets, and is as its user wrote it.
"""

from __future__ import annotations

import argparse
import json
import reprlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

DEEPEST = 64
LONGEST_SHOWN = 1000
MOST_LISTED = 20
MOST_DIGITS = 40  # the most digits of a whole number; Kafka's largest has 19


def parsed(text: str | bytes) -> Any:
    """The value of JSON. Raises ValueError with a text that follows the name of its place: that it is no JSON
    (:class:`json.JSONDecodeError`), is nested too deeply, or has a number that nothing can be."""
    return _read(text, dict)


def parsed_without_doubles(text: str | bytes) -> Any:
    """As :func:`parsed`, and no key is twice in one object."""
    return _read(text, _without_doubles)


def excerpt(value: object) -> str:
    """`value` as Python writes it, cut where it is long or deep, for an error."""
    return _EXCERPT.repr(value)


def shortened(text: str) -> str:
    """`text`, cut in the middle where it is too long for an error."""
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN // 2]}...{text[-LONGEST_SHOWN // 2 :]}"


def listed(names: Sequence[str]) -> str:
    """`names`, with commas; of many the first, and how many more there are."""
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return ", ".join(names[:MOST_LISTED]) + more


def _read(text: str | bytes, make: Any) -> Any:
    try:
        value = json.loads(text, object_pairs_hook=make, parse_int=_whole, parse_constant=_no_number)
    except RecursionError:
        raise ValueError(f"is nested deeper than {DEEPEST} levels") from None
    if is_deep(value):
        raise ValueError(f"is nested deeper than {DEEPEST} levels")
    return value


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"has a number of {len(digits)} digits, more than {MOST_DIGITS}")
    return int(digits)


def _no_number(word: str) -> float:
    raise ValueError(f"has {word}, which is not a number in JSON")


def _without_doubles(pairs: list[tuple[str, object]]) -> dict[str, object]:
    for key, count in Counter(key for key, _ in pairs).items():
        if count > 1:
            raise ValueError(f"has {key!r} {count} times")
    return dict(pairs)


def is_deep(value: object) -> bool:
    """Whether a value is nested so deeply that walking through it, or showing it, may exhaust the stack."""
    level = [value]
    for _ in range(DEEPEST):
        level = [inner for outer in level if isinstance(outer, dict | list) for inner in _inside(outer)]
        if not level:
            return False
    return True


def _inside(outer: dict[str, object] | list[object]) -> Any:
    return outer.values() if isinstance(outer, dict) else outer


def _excerpts() -> reprlib.Repr:
    cut = reprlib.Repr()
    cut.maxdict = cut.maxlist = 20
    cut.maxstring = cut.maxother = cut.maxlong = 200
    return cut


_EXCERPT = _excerpts()


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
