"""The texts that a user can see, read from the package's code: tests compare pages with them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from support.source_tree import PACKAGE, modules, nodes

ANY = "…"
"""Stands for a value in a text."""
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


def trees() -> dict[str, ast.Module]:
    """The package's modules, parsed, by their paths."""
    return {str(file.relative_to(PACKAGE)): tree for file, tree in modules().items()}


def logged() -> list[Message]:
    """Lines of the log at INFO and above, as far as their text stands where they are logged."""
    return sorted({message for file, tree in trees().items() for message in _logged(tree, file)})


def _logged(tree: ast.Module, file: str) -> Iterator[Message]:
    for node in nodes(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="log"), attr=level), args=[first, *_]):
                if level in LEVELS and says_something(text := text_of(first)):
                    yield Message(LEVELS[level], text, file)


def raised() -> list[Message]:
    """Texts of errors, by class: those they are made with, and those that their classes write."""
    return sorted({message for file, tree in trees().items() for message in _raised(tree, file)})


def _raised(tree: ast.Module, file: str) -> Iterator[Message]:
    for node in nodes(tree):
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
