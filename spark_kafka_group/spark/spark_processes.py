"""What this package does in Spark's Python processes: errors of one sentence, quick starts, ends without a traceback.

**Spark has hung up.** Over Unix domain sockets its processes print a traceback then. Spark closes the connection to a
worker whose rows it needs no more (``show(2)``), that reported an error, or that was idle for a minute. The worker then
writes a few last bytes, and Spark's daemon prints a BrokenPipeError. Over TCP the kernel takes these bytes, and no one
sees it. Nothing is lost either way.

A stream reader's process does the same when its query is stopped: it has an answer to send, or reports that its input
has ended. Python itself prints this BrokenPipeError, and Spark shows the part that it reads before it ends the process,
at times the first line alone.

**The connection to Spark's JVM is TCP.** Spark writes a task in small pieces. The kernel keeps a small piece back until
the one before it has been acknowledged (Nagle), and this side's kernel, which has nothing to send meanwhile,
acknowledges after 40 ms only (delayed ACK). That is most of a small task's time. With
``spark.python.unix.domain.socket.enabled=true`` there is no TCP.

**mapInArrow** of pyspark imports pandas on the driver, and does not need it.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from functools import cache, partial
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any

from pyspark import SparkFiles

from spark_kafka_group.errors import NO_TRACEBACK, GroupKafkaError, InterceptorError, MissingPackageError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    Function = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

log = logging.getLogger(__name__)


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


_OPEN_FILES = Path("/proc/self/fd")


def acknowledge_at_once() -> None:
    """Acknowledge Spark's bytes so far, and send without delay. Called when a task's reader is unpickled. The rest of
    the task can then follow. Works on Linux, where Spark connects by TCP, and does nothing elsewhere."""
    for descriptor in _spark_connections(os.getpid()):
        with contextlib.suppress(OSError), _borrowed(descriptor) as connection:
            # The kernel goes back to delayed ones by itself, so this is said for each task.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


@cache
def _spark_connections(pid: int) -> tuple[int, ...]:
    """Descriptors of TCP connections within this machine that were open when the first task came. None of them is to a
    broker yet. By process, as a forked one has others."""
    if not hasattr(socket, "TCP_QUICKACK") or not _OPEN_FILES.is_dir():
        return ()
    descriptors = []
    for name in os.listdir(_OPEN_FILES):
        with contextlib.suppress(OSError, ValueError), _borrowed(int(name)) as connection:
            over_tcp = connection.family in (socket.AF_INET, socket.AF_INET6) and connection.type == socket.SOCK_STREAM
            if over_tcp and ip_address(connection.getpeername()[0]).is_loopback:
                descriptors.append(int(name))
    return tuple(descriptors)


@contextlib.contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    """The socket of a descriptor that Spark owns; detached afterwards. OSError when it is no socket."""
    blocking = os.get_blocking(descriptor)
    borrowed = socket.socket(fileno=descriptor)
    try:
        # Under socket.setdefaulttimeout() Python has just made it one that does not block.
        os.set_blocking(descriptor, blocking)
        yield borrowed
    finally:
        borrowed.detach()


ENDING = "pyspark.sql.worker.python_streaming_sink_runner"
"""The module in which Spark runs commit and abort of a micro-batch."""


class SentToTasks:
    """A reader or writer that is pickled into every task; the rest of the task follows when it has been unpickled."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        acknowledge_at_once()
        end_quietly()


@contextlib.contextmanager
def in_one_sentence() -> Iterator[None]:
    """Have Spark repeat this package's errors as one sentence, without the hundred lines of their tracebacks, which
    only errors of an interceptor keep, as it is the user's code. A Spark process ends after an error."""
    try:
        yield
    except GroupKafkaError as error:
        if SparkFiles._is_running_on_worker and not isinstance(error, InterceptorError):
            log.debug("%s", error, exc_info=True)
            os.environ[NO_TRACEBACK] = "1"
        raise


def ends_micro_batches() -> bool:
    """Whether this process of Spark's makes a writer to commit or abort a micro-batch, and not to plan one."""
    main = sys.modules["__main__"].__spec__
    return ENDING in sys.modules or (main is not None and main.name == ENDING)


@cache
def keep_imports() -> None:
    """Spark's worker collects garbage after each task. The modules of the first task are never garbage."""
    gc.freeze()


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """While kafka-python is imported the garbage collector rests: all of its schemas stay, and there is no garbage."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


PIP = "pip install 'pandas>=2.2'"


def map_in_arrow(df: DataFrame, function: Function, schema: str) -> DataFrame:
    """``df.mapInArrow(function, schema)``. Raises MissingPackageError without a pandas that pyspark takes."""
    try:
        return df.mapInArrow(partial(_quietly, function), schema)
    except ImportError as error:
        raise MissingPackageError(f"handlers need pandas on the driver, 2.2 or newer: {PIP}") from error


def _quietly(function: Function, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    end_quietly()  # Spark may run the function in a worker that has not read with this source
    return function(batches)
