"""Spark's Python workers over Unix domain sockets: they end without a traceback when Spark has hung up.

Spark closes the connection to a worker whose rows it needs no more (``show(2)``), that reported an error, or that was
idle for a minute. The worker then writes a few last bytes, and Spark's daemon prints a BrokenPipeError. Over TCP the
kernel takes these bytes, and no one sees it. Nothing is lost either way.
"""

from __future__ import annotations

import sys
import traceback
from types import SimpleNamespace

DAEMON = "pyspark.daemon"


def end_quietly() -> None:
    """Have the daemon's part in this worker print no BrokenPipeError; a no-op outside a worker that a daemon forked."""
    program = sys.modules["__main__"]
    spec = getattr(program, "__spec__", None)
    if spec is not None and spec.name == DAEMON:
        program.traceback = SimpleNamespace(format_exc=traceback.format_exc, print_exc=_print_exc)  # type: ignore[attr-defined]


def _print_exc() -> None:
    if not isinstance(sys.exc_info()[1], BrokenPipeError):
        traceback.print_exc()
