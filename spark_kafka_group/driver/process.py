"""The process in which Spark runs a stream reader: its end, its imports, and its log.

Spark ends it with SIGTERM, often twice, and does not call stop(). Python would die of that without running the
runner's ``finally: reader.stop()``, and the member would stay in the group until its session times out.

SparkSession.stop() does not even do that: the query's thread lives on in the JVM and goes on asking for offsets. Here
the only sign of it is that Spark has removed the driver's temporary directory.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType

from pyspark import SparkFiles

from spark_kafka_group.files import READERS_FOLDER
from spark_kafka_group.user_classes import Terminated

log = logging.getLogger(__name__)

ENDING = (signal.SIGTERM, signal.SIGINT)
"""SIGINT does not end a process that ignored it on arrival. A terminal sends Ctrl-C to the whole foreground group, and
PySpark has the JVM and its children ignore that: the user's program alone decides whether its queries end."""

SESSION_CHECK_S = 0.5
TOUCH_AGAIN_S = 60.0
"""Cleaners of temporary files remove directories that have not been used for hours or days."""
LOGGING_CONFIG = "SPARK_KAFKA_GROUP_LOGGING"
"""Environment variable: path of a file for :func:`logging.config.fileConfig`. Without it warnings go to stderr."""


def prepare() -> None:
    """Make this process end in order, and configure its log; a no-op outside Spark's own Python processes."""
    if not SparkFiles._is_running_on_worker:
        return
    for number in ENDING:
        if number != signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _exit_once)
    gc.freeze()  # modules stay: a full collection at each trigger need not look at them
    configure_logging()
    directory = _session_directory()
    if directory is not None:
        _find_shipped_modules(directory)
        watch = threading.Thread(target=_end_without, args=(directory,), name="groupkafka-session", daemon=True)
        watch.start()


def configure_logging() -> None:
    """Log where the environment says; a no-op outside Spark's own Python processes."""
    path = os.environ.get(LOGGING_CONFIG)
    if path and SparkFiles._is_running_on_worker:
        import logging.config

        logging.config.fileConfig(path, disable_existing_loggers=False)


def shared_directory() -> Path | None:
    """A directory that this Spark application's reader processes share, for as long as it runs; None outside Spark."""
    directory = _session_directory() if SparkFiles._is_running_on_worker else None
    return None if directory is None else Path(directory)


def _session_directory() -> str | None:
    """A directory that the driver's JVM removes when its session stops."""
    files = SparkFiles._root_directory
    # For a streaming query Spark names a directory below it that need not exist.
    candidates = [files, os.path.dirname(files)] if files else []
    return next((path for path in candidates if os.path.isdir(path)), None)


def _find_shipped_modules(directory: str) -> None:
    """Let modules that the user shipped (--py-files, addPyFile) be imported.

    Spark's Python path names it below the directory that need not exist; then it is in `directory` itself.
    """
    named = SparkFiles._root_directory
    if named and named != directory:
        shipped = [
            directory + path[len(named) :] for path in sys.path if path == named or path.startswith(named + os.sep)
        ]
        # Python has not looked there before, so no importlib.invalidate_caches(): that reads the directories of
        # pyspark.zip and of Spark's jar again, which takes longer than joining the group.
        sys.path += [path for path in shipped if path not in sys.path]


def _end_without(directory: str) -> None:
    """End this process, in order, when `directory` is gone; until then, keep it looking used."""
    touched = float("-inf")
    while os.path.isdir(directory):
        if time.monotonic() - touched >= TOUCH_AGAIN_S:
            touched = time.monotonic()
            _touch(Path(directory))
        time.sleep(SESSION_CHECK_S)
    log.info("the Spark session was stopped: ending")
    os.kill(os.getpid(), signal.SIGTERM)


def _touch(directory: Path) -> None:
    for path in (directory, directory / READERS_FOLDER, *directory.glob(f"{READERS_FOLDER}/**/*")):
        with contextlib.suppress(OSError):  # Spark removes the directory, and sources their files, at any time
            os.utime(path)


def _exit_once(number: int, frame: FrameType | None) -> None:
    """Raise Terminated, once.

    1. Spark sends SIGTERM. 2. Terminated ends the call under way, and stop() leaves the group. 3. Spark sends SIGTERM
    again, within 2 ms: that one must not interrupt stop().
    """
    for ending in ENDING:
        signal.signal(ending, signal.SIG_IGN)
    raise Terminated(128 + number)
