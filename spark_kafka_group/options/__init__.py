"""Every option of the source, once: name, type, default and effect.

Names are Spark's where Spark's kafka source has the option, and ``kafka.`` plus the consumer's where Kafka has it.
They are case-insensitive, as in Spark. All are checked when ``load()`` is called, before any network call.

Tasks unpickle this and parse nothing, so modules that only parsing needs are imported where they are used.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from spark_kafka_group.errors import OptionError
from spark_kafka_group.json_text import shortened
from spark_kafka_group.options.client_options import ClientOptions
from spark_kafka_group.options.connection import Connection
from spark_kafka_group.options.fetching import Fetching
from spark_kafka_group.options.group import Group
from spark_kafka_group.options.reading import Reading
from spark_kafka_group.options.sections import DECLARED, OPTION_NAMES, SECTIONS, Sections
from spark_kafka_group.security.option_values import is_key

LONGEST_NAME = 200
"""The longest name that is compared with known names."""
ALIKE = 0.8
"""From this likeness on, of at most 1, a name is a known one, misspelt."""
NEAR = 0.65
"""From this likeness on, of at most 1, an error names a known name."""
LONGEST_TEXT = 4 * 1024 * 1024
"""The most characters of an option."""

__all__ = ["OPTION_NAMES", "ClientOptions", "Connection", "Fetching", "Group", "Options", "Reading"]


@dataclasses.dataclass(frozen=True, repr=False)
class Options(Sections):
    """The options of one query, checked. Built by :meth:`parse`."""

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Options:
        """Check `raw`, as given to ``option()``, and turn it into typed values.

        Raises
        ------
        OptionError
            On the first option that is unknown, refused, malformed, missing, or contradicts another one.
        """
        from spark_kafka_group.options import checks

        given = parsed_each(raw)
        for section, field in DECLARED.values():
            if field.metadata["required"] and field.name not in given[section]:
                raise OptionError(f"option {field.metadata['name']} is missing: {field.metadata['doc']}")
        sections: dict[str, Any] = {name: section(**given[name]) for name, section in SECTIONS.items()}
        options = cls(**sections)
        checks.check(options)
        return options


def parsed_each(raw: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The values of single options, by section and field: no check between options, no import of the user's classes.

    Raises
    ------
    OptionError
        On the first option that is unknown, refused or malformed.
    """
    given: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for name, value in raw.items():
        if name.lower() not in DECLARED:
            raise OptionError(_unknown(name))
        section, field = DECLARED[name.lower()]
        given[section][field.name] = _parsed(field, value)
    return given


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
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise OptionError(
            f"{option} is not valid Unicode text: a surrogate in it has no pair. Check how the text was decoded"
        )
    return text


def _unknown(name: str) -> str:
    from spark_kafka_group.options.unsupported import why_unsupported

    # A value that was written into the name is not shown, as it may be secret.
    name = re.split("[=:\"'\n]|-----BEGIN", name, maxsplit=1)[0] or "without a name"
    if len(name) > LONGEST_NAME:
        return f"option {shortened(name)} is not known: no option has so long a name"
    why = why_unsupported(name)
    if why is not None:
        return f"option {name} is not supported: {why}"
    lowered = name.lower()
    nearest = f"kafka.{lowered}" if f"kafka.{lowered}" in DECLARED else _nearest(lowered)
    if nearest is None:
        return f"option {name} is not known, and none has a name like it: docs/options.md has all options"
    known = DECLARED[nearest][1].metadata["name"]
    return f"option {_as_written(name, known)} is not known; the nearest is {known}"


def _nearest(lowered: str) -> str | None:
    """The option whose name is most like it, without the prefix that many have; None where none is."""
    import difflib

    bare = {known.removeprefix("kafka."): known for known in DECLARED}
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
