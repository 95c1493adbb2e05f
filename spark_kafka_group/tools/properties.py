"""Java properties files, as Kafka's own tools take them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path

from spark_kafka_group.errors import OptionError
from spark_kafka_group.values.files import read_file

SETTING = re.compile(r"((?:\\.|[^ \t\f=:\\])+)(?:[ \t\f]*[=:][ \t\f]*|[ \t\f]+|$)(.*)", re.DOTALL)
ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
MALFORMED = re.compile(r"(?<!\\)(\\\\)*\\u(?![0-9a-fA-F]{4})")
LINE_END = re.compile(r"\r\n|\n|\r")
BLANKS = " \t\f"
NAME = re.compile(r"[a-z]+(\.[a-z]+)+|[a-z]+([A-Z][a-z]+)+")
"""The shape of a setting's name; another text may be half a secret."""
MOST_SHOWN = 10
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(path: Path, known: Collection[str]) -> dict[str, str]:
    """Settings of a properties file. `known`: those with an effect, in any case; a name that ends in ``.`` stands for
    all that begin so. Raises OptionError with the place, but no text, which may be secret."""
    settings = {}
    for number, line in _logical_lines(_text(path)):
        setting = SETTING.fullmatch(line)
        if setting is None or ("=" not in line and ":" not in line):
            raise OptionError(f"{path}:{number}: this line is not name=value")
        name, value = (_unescaped(part, f"{path}:{number}") for part in setting.groups())
        _check_known(name, known, f"{path}:{number}")
        settings[name] = value
    return settings


def _check_known(name: str, known: Collection[str], place: str) -> None:
    if _is_known(name, known):
        return
    other = name.removeprefix("kafka.") if name.startswith("kafka.") else f"kafka.{name}"
    if NAME.fullmatch(name) and _is_known(other, known):
        raise OptionError(f"{place}: {name} is not supported in this file: write {other}")
    named = name if NAME.fullmatch(name) else "the setting of this line"
    shown = ", ".join(f"{one}*" if one.endswith(".") else one for one in known)
    only = f", only {shown} are" if len(known) <= MOST_SHOWN else ""
    raise OptionError(f"{place}: {named} is not supported{only}: remove it")


def _text(path: Path) -> str:
    try:
        return read_file(path).decode("utf-8-sig")
    except OSError as error:
        raise OptionError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise OptionError(f"{path} cannot be read: it is not text in UTF-8") from None


def _is_known(name: str, known: Collection[str]) -> bool:
    lowered = name.lower()
    return any(lowered == one or (one.endswith(".") and lowered.startswith(one)) for one in map(str.lower, known))


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that are no comments, those that end in a backslash joined with the next; and the number each begins at."""
    began, joined = 0, ""
    for number, line in enumerate(LINE_END.split(text), start=1):
        stripped = line.lstrip(BLANKS)
        if not joined:
            began = number
            if not stripped or stripped[0] in "#!":
                continue
        joined += stripped
        backslashes = len(joined) - len(joined.rstrip("\\"))
        if backslashes % 2:
            joined = joined[:-1]
            continue
        yield began, joined
        joined = ""
    if joined:
        yield began, joined


def _unescaped(text: str, place: str) -> str:
    if MALFORMED.search(text):
        raise OptionError(f"{place}: a \\u there is not followed by four hexadecimal digits")
    unescaped = ESCAPE.sub(_character, text)
    try:
        # A character beyond 16 bits is two escapes, as in Java.
        return unescaped.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise OptionError(f"{place}: a \\u escape there is a surrogate without its pair") from None


def _character(escape: re.Match[str]) -> str:
    what = escape[1]
    return chr(int(what[1:], 16)) if len(what) > 1 else ESCAPES.get(what, what)
