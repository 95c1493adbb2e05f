"""Spark's Python processes over Unix domain sockets: they end without a traceback when Spark has hung up.

Spark closes the connection to a worker whose rows it needs no more (``show(2)``), that reported an error, or that was
idle for a minute. The worker then writes a few last bytes, and Spark's daemon prints a BrokenPipeError. Over TCP the
kernel takes these bytes, and no one sees it. Nothing is lost either way.

A stream reader's process does the same when its query is stopped: it has an answer to send, or reports that its input
has ended. Python itself prints this BrokenPipeError, and Spark shows the part that it reads before it ends the process,
at times the first line alone.
"""

from __future__ import annotations

import sys
import traceback
from types import SimpleNamespace, TracebackType

DAEMON = "pyspark.daemon"
READER = "pyspark.sql.streaming.python_streaming_source_runner"


def end_quietly() -> None:
    """Have Spark's part in this process print no BrokenPipeError; a no-op outside Spark's Python processes."""
    program = sys.modules["__main__"]
    spec = getattr(program, "__spec__", None)
    if spec is not None and spec.name == DAEMON:
        program.traceback = SimpleNamespace(format_exc=traceback.format_exc, print_exc=_print_exc)  # type: ignore[attr-defined]
    elif spec is not None and spec.name == READER:
        sys.excepthook = _print_uncaught


def _print_exc() -> None:
    if not isinstance(sys.exc_info()[1], BrokenPipeError):
        traceback.print_exc()


def _print_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not isinstance(error, BrokenPipeError):
        sys.__excepthook__(kind, error, trace)
