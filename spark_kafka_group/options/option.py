"""How an option is declared: a field of a section; and values that many of them have.

Below all sections, so that each can be where its values are at home: most in ``options``, that of ``security`` there.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

from spark_kafka_group.text.foreign_text import MOST_DIGITS
from spark_kafka_group.values.offsets import INT32_MAX


def option(
    name: str,
    parse: Callable[[str], Any],
    doc: str,
    default: Any = None,
    shown: str | None = None,
    required: bool = False,
    passed_on: bool = False,
    secret: bool = False,
) -> Any:
    """One option as a field of a section.

    `name`: as users write it; taken in any case.
    `parse`: from its text to its value; the text of its ValueError follows the option's name and value.
    `doc`: its meaning in docs/options.md.
    `shown`: the default as docs/options.md prints it, if not as it is.
    `passed_on`: whether kafka-python's connections have it, under the field's name, and get it as it is.
    `secret`: whether its value is in no error.
    """
    metadata = {
        "name": name, "parse": parse, "doc": doc, "required": required, "shown": shown, "passed_on": passed_on,
        "secret": secret,
    }  # fmt: skip
    return dataclasses.field(default=default, metadata=metadata)


class Section:
    """Options that are used together: a frozen dataclass whose fields are made by :func:`option`. Shows no values."""

    def given(self) -> list[str]:
        """Names of the options that are not at their defaults."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        return [field.metadata["name"] for field in fields if getattr(self, field.name) != field.default]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self.given())})"


def text(raw: str) -> str:
    """Any text."""
    if not raw.strip():
        raise ValueError("must not be empty")
    return raw.strip()


def integer(low: int, high: int = INT32_MAX) -> Callable[[str], int]:
    """A whole number within bounds."""

    def parse(raw: str) -> int:
        digits = re.fullmatch(r"[+-]?0*([0-9]+)", raw.strip(), re.ASCII)
        if digits is None:
            raise ValueError("must be a whole number")
        if len(digits[1]) > MOST_DIGITS or not low <= int(raw) <= high:
            raise ValueError(f"must be between {low} and {high}")
        return int(raw)

    return parse


def boolean(raw: str) -> bool:
    """true or false."""
    if raw.strip().lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return raw.strip().lower() == "true"


def choice(*words: str) -> Callable[[str], str]:
    """One of some words, however they are capitalized."""
    by_lower_case = {word.lower(): word for word in words}

    def parse(raw: str) -> str:
        word = by_lower_case.get(raw.strip().lower())
        if word is None:
            raise ValueError(f"must be one of {', '.join(words)}")
        return word

    return parse


def names(raw: str) -> tuple[str, ...]:
    """Names, separated by commas."""
    parts = [name.strip() for name in raw.split(",")]
    if not all(parts):
        raise ValueError("has an empty name: look for a stray comma")
    return tuple(dict.fromkeys(parts))
