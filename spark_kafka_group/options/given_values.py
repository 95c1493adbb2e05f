"""From options as they were given to values by section and field; and the error about a name that no option has."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from spark_kafka_group.errors import OptionError
from spark_kafka_group.options.security.option_values import is_key
from spark_kafka_group.text.foreign_text import shortened

LONGEST_NAME = 200  # the longest name that is compared with known names
ALIKE = 0.8  # from this likeness on, of at most 1, a name is a known one, misspelt
NEAR = 0.65  # from this likeness on, of at most 1, an error names a known name
LONGEST_TEXT = 4 * 1024 * 1024  # the most characters of an option

Declared = Mapping[str, tuple[str, dataclasses.Field[Any]]]
"""Section and field of each option, by its name in lower case."""


def values(
    raw: Mapping[str, Any], declared: Declared, sections: Iterable[str], unknown: Callable[[str], str]
) -> dict[str, dict[str, Any]]:
    """The values of single options, by section and field: no check between options, no import of the user's classes.
    `unknown`: the error's text about a name that `declared` does not have. Raises OptionError on the first option that
    is unknown, refused or malformed."""
    given: dict[str, dict[str, Any]] = {section: {} for section in sections}
    for name, value in raw.items():
        if name.lower() not in declared:
            raise OptionError(unknown(name))
        section, field = declared[name.lower()]
        given[section][field.name] = _parsed(field, value)
    return given


def check_required(given: Mapping[str, Mapping[str, Any]], declared: Declared) -> None:
    """See whether each required option was given. Raises OptionError."""
    for section, field in declared.values():
        if field.metadata["required"] and field.name not in given[section]:
            raise OptionError(f"option {field.metadata['name']} is missing: {field.metadata['doc']}")


def _parsed(field: dataclasses.Field[Any], value: object) -> Any:
    text = _text(field.metadata["name"], value)
    try:
        return field.metadata["parse"](text)
    except ValueError as error:
        hidden = field.metadata["secret"] or is_key(text)
        shown = "" if hidden else f" ({shortened(text)})"
        raise OptionError(f"{field.metadata['name']}{shown} {error}") from None


def _text(option: str, value: object) -> str:
    """As Spark's ``option()`` turns a value into text."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if value is None:
        raise OptionError(f"{option} is None: give it a value, or leave it out")
    if len(text) > LONGEST_TEXT:
        raise OptionError(f"{option} has {len(text)} characters: at most {LONGEST_TEXT} are allowed")
    if not text.isascii() and re.search("[\ud800-\udfff]", text):
        raise OptionError(
            f"{option} is not valid Unicode text: a surrogate in it has no pair. Check how the text was decoded"
        )
    return text


def why_unknown(name: str, declared: Declared, why_refused: Callable[[str], str | None], page: str) -> str:
    """The error's text about an option that is none of `declared`. `why_refused`: why an option is refused; None if
    nothing is known of it. `page`: the page that has all options."""
    # A value that was written into the name is not shown, as it may be secret.
    name = re.split("[=:\"'\n]|-----BEGIN", name, maxsplit=1)[0] or "without a name"
    if len(name) > LONGEST_NAME:
        return f"option {shortened(name)} is not known: no option has so long a name"
    why = why_refused(name)
    if why is not None:
        from spark_kafka_group.options.unsupported import spelled

        return f"option {spelled(name)} is not supported: {why}"
    lowered = name.lower()
    nearest = f"kafka.{lowered}" if f"kafka.{lowered}" in declared else _nearest(lowered, declared)
    if nearest is None:
        return f"option {name} is not known, and none has a name like it: {page} has all options"
    known = declared[nearest][1].metadata["name"]
    return f"option {_as_written(name, known)} is not known; the nearest is {known}"


def _nearest(lowered: str, declared: Declared) -> str | None:
    """The option whose name is most like it, without the prefix that many have; None where none is."""
    import difflib

    bare = {known.removeprefix("kafka."): known for known in declared}
    nearest = difflib.get_close_matches(lowered.removeprefix("kafka."), bare, n=1, cutoff=NEAR)
    return bare[nearest[0]] if nearest else None


def _as_written(name: str, known: str) -> str:
    """A name with the capitals of a known one that is like it: Spark hands names over in lower case."""
    import difflib

    alike = difflib.SequenceMatcher(None, name, known.lower(), autojunk=False)
    if name != name.lower() or alike.ratio() < ALIKE:
        return name
    letters = list(name)
    for same in alike.get_matching_blocks():
        letters[same.a : same.a + same.size] = known[same.b : same.b + same.size]
    return "".join(letters)
