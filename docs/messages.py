"""The texts that a user can see, read from the package's code: tables of docs/messages.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from spark_kafka_group import errors
from spark_kafka_group.__main__ import parser
from spark_kafka_group.driver.reporting.progress import MEANINGS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "spark_kafka_group"
ANY = "…"
"""Stands for a value in a text."""
OF_OPTIONS = ("option", "security/", "json_text")
"""Modules whose ValueErrors follow an option's name and value."""
OF_TOOLS = {"ToolError", "UsageError"}
LEVELS = {"error": "ERROR", "exception": "ERROR", "warning": "WARNING", "info": "INFO"}


class Message(NamedTuple):
    """A text of the code."""

    kind: str
    """A level of the log, or the name of an error's class."""
    text: str
    file: str
    """Relative to the package."""


def text_of(node: ast.AST) -> str | None:
    """A text of the code, with … for the values in it; None for other nodes."""
    match node:
        case ast.Constant(value=str(text)):
            return re.sub(r"%[sdr]|%\.\df|\{[\w.]*\}", ANY, text)
        case ast.JoinedStr(values=values):
            return "".join(ANY if isinstance(value, ast.FormattedValue) else str(value.value) for value in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return (text_of(left) or ANY) + (text_of(right) or ANY)
    return None


@cache
def trees() -> dict[str, ast.Module]:
    """The package's modules, parsed, by their paths."""
    return {str(file.relative_to(PACKAGE)): ast.parse(file.read_text()) for file in sorted(PACKAGE.rglob("*.py"))}


def logged() -> list[Message]:
    """Lines of the log at INFO and above, as far as their text stands where they are logged."""
    return sorted({message for file, tree in trees().items() for message in _logged(tree, file)})


def _logged(tree: ast.Module, file: str) -> Iterator[Message]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="log"), attr=level), args=[first, *_]):
                if level in LEVELS and says_something(text := text_of(first)):
                    yield Message(LEVELS[level], text, file)


def raised() -> list[Message]:
    """Texts of errors, by class: those they are made with, and those that their classes write."""
    return sorted({message for file, tree in trees().items() for message in _raised(tree, file)})


def _raised(tree: ast.Module, file: str) -> Iterator[Message]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name), args=arguments) if name.endswith("Error"):
                yield from _texts(name, arguments, file)
            case ast.ClassDef(name=name) if name.endswith("Error"):
                for inner in ast.walk(node):
                    match inner:
                        case ast.Call(func=ast.Attribute(attr="__init__"), args=arguments):
                            yield from _texts(name, arguments, file)


def _texts(name: str, arguments: list[ast.expr], file: str) -> Iterator[Message]:
    for argument in arguments:
        if says_something(text := text_of(argument)):
            yield Message(name, text, file)


def says_something(text: str | None) -> bool:
    """Whether there are words in it besides values."""
    return text is not None and len(re.findall(r"[A-Za-z]{2,}", text)) > 1


def log_table() -> str:
    """Lines of the log, the gravest first."""
    gravest = sorted(logged(), key=lambda line: (list(LEVELS.values()).index(line.kind), line.text))
    return table(("level", "line"), [(line.kind, code(line.text)) for line in gravest])


def error_table() -> str:
    """Errors that end a query, a read or a call, by the names that programs catch."""
    public = [error for error in raised() if hasattr(errors, error.kind)]
    return table(("error", "text"), [(f"`{error.kind}`", code(error.text)) for error in public])


def value_table() -> str:
    """Ends of sentences about options."""
    ends = {error.text for error in raised() if error.kind == "ValueError" and error.file.startswith(OF_OPTIONS)}
    return table(("the option's value",), [(code(end),) for end in sorted(ends)])


def tool_table() -> str:
    """Errors of the commands and of the broker for tests."""
    of_tools = [error for error in raised() if error.kind in OF_TOOLS or error.file.startswith("testing/")]
    return table(("text",), [(code(text),) for text in sorted({error.text for error in of_tools})])


def progress_table() -> str:
    """Keys of the progress that are no metrics."""
    return table(("key", "meaning"), [(f"`{key}`", meaning) for key, meaning in MEANINGS.items()])


def command_table() -> str:
    """The commands of ``python -m spark_kafka_group``."""
    (commands,) = (action for action in parser()._actions if action.dest == "command")
    named = [(f"`{action.dest}`", action.help) for action in commands._choices_actions]
    return table(("command", "purpose"), named)


def code(text: str) -> str:
    """For a cell of a table."""
    return "`" + " ".join(text.replace("|", "\\|").replace("`", "'").split()) + "`"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Markdown."""
    lines = [head, ("---",) * len(head), *dict.fromkeys(rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
