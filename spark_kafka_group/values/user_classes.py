"""Classes of the user's own, named in options as ``module:Class``."""

from __future__ import annotations

import importlib
import re
from collections.abc import Collection
from typing import Any

from spark_kafka_group.errors import OptionError
from spark_kafka_group.text.foreign_text import shortened

CLASS = re.compile(r"(?=.{1,1000}\Z)[\w-]+(\.[\w-]+)*:\w+", re.DOTALL)


class Terminated(SystemExit):
    """Raised in Spark's reader process when Spark ends it; another SystemExit is the user's own."""

    def __str__(self) -> str:
        return "a signal has ended the process that reads for the query"


PASSED_ON = (KeyboardInterrupt, Terminated)
"""Exceptions that are no errors of the user's code, also when they interrupt it."""


def load_class(option: str, named: str, methods: Collection[str], optional: Collection[str] = ()) -> Any:
    """The class that `named` names, with `methods`, or at least one of `optional`. Raises OptionError otherwise."""
    if not CLASS.fullmatch(named):
        raise OptionError(f"{option} ({shortened(named)}) must be module:Class")
    module, _, attribute = named.partition(":")
    try:
        loaded = getattr(importlib.import_module(module), attribute)
    except PASSED_ON:
        raise
    except BaseException as error:
        raise OptionError(
            f"{option} ({named}) could not be imported: {type(error).__name__}: {error}. "
            f"Its module must be importable on the driver, and where executors use it, there too"
        ) from error
    lacking = [method for method in methods if not callable(getattr(loaded, method, None))]
    if lacking or not callable(loaded):
        raise OptionError(
            f"{option} ({named}) must be a class with {', '.join(methods)}; {', '.join(lacking)} is missing"
        )
    if optional and not any(callable(getattr(loaded, method, None)) for method in optional):
        raise OptionError(f"{option} ({named}) must be a class with at least one of {', '.join(optional)}")
    return loaded


def make(option: str, named: str, methods: Collection[str], optional: Collection[str] = ()) -> Any:
    """An object of the class that `named` names, made without arguments. Raises OptionError."""
    loaded = load_class(option, named, methods, optional)
    try:
        return loaded()
    except PASSED_ON:
        raise
    except BaseException as error:
        raise OptionError(f"{option} ({named}) could not be made: {type(error).__name__}: {error}") from error
