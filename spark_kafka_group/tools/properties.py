"""Java properties files, as Kafka's own tools take them with ``--command-config``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path

from spark_kafka_group.tools.errors import ToolError

SETTING = re.compile(r"((?:\\.|[^\s=:\\])+)(?:\s*[=:]\s*|\s+|$)(.*)", re.DOTALL)
ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(path: Path, known: Collection[str]) -> dict[str, str]:
    """Settings of a properties file. Errors say where something is wrong, and not what stands there: it may be secret.

    Parameters
    ----------
    known
        Settings that have an effect; ending in ``.``, all that begin so.

    Raises
    ------
    ToolError
        When the file cannot be read, or has a setting that would be without effect.
    """
    found = {}
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ToolError(f"--command-config {path} cannot be read: {error}") from error
    for number, line in _logical_lines(text):
        setting = SETTING.fullmatch(line)
        if setting is None or ("=" not in line and ":" not in line):
            raise ToolError(f"{path}:{number}: this line is not name=value")
        name, value = (ESCAPE.sub(_unescaped, part) for part in setting.groups())
        if not any(name == one or (one.endswith(".") and name.startswith(one)) for one in known):
            said = name if re.fullmatch(r"[a-z]+(\.[a-z]+)+", name) else "what this line sets"
            shown = ", ".join(f"{one}*" if one.endswith(".") else one for one in known)
            raise ToolError(f"{path}:{number}: {said} is not supported, only {shown} are: remove it")
        found[name] = value
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that are no comments, those that end in a backslash with what follows; and the number each begins at."""
    began, joined = 0, ""
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.lstrip()
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


def _unescaped(escape: re.Match[str]) -> str:
    what = escape[1]
    return chr(int(what[1:], 16)) if len(what) > 1 else ESCAPES.get(what, what)
