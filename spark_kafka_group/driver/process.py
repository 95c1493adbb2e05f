"""The process in which Spark runs a stream reader: its end, its imports, and its log.

Spark ends it with SIGTERM, often twice, and does not call stop(). Python would die of that without running the
runner's ``finally: reader.stop()``, and the member would stay in the group until its session times out. So the signal
raises an exception, which must not cut that stop() short in its turn:

1. A query is stopped in the middle of a call to its reader. Java closes a connection when the thread that waits for it
is interrupted. 2. The runner reads the end of its input, and calls stop(). 3. Spark sends SIGTERM.

SparkSession.stop() does not even send a signal: the query's thread lives on in the JVM and goes on asking for offsets.
Here the only sign of it is that Spark has removed the driver's temporary directory.

A JVM that is killed takes its sockets along, but for copies of them in processes that it was just about to start:

1. Two threads of the JVM start a command each, as Hadoop does for the rights of each file. 2. Java's helper processes
for them have copies of all that is open in the JVM, and of each other's pipes, from which they read what to do. 3. The
JVM is killed before it has written that. 4. Each helper waits for ever, as the other one holds its pipe open.

So a connection to the JVM need not end with it, and a member would stay whose query nobody runs. The sign is another
parent.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from pyspark import SparkFiles

from spark_kafka_group.errors import NO_TRACEBACK
from spark_kafka_group.values.files import READERS_FOLDER
from spark_kafka_group.values.user_classes import Terminated

log = logging.getLogger(__name__)

COMING = (signal.SIGTERM, signal.SIGINT)
"""SIGINT ends no process of Spark's. A terminal sends Ctrl-C to the whole foreground group: the user's program alone
decides whether its queries end, and the JVM's end ends them. PySpark has the JVM and its children ignore SIGINT,
spark-submit does not."""

SESSION_CHECK_S = 0.5
AGAIN_AFTER_S = 5.0  # a signal that comes so long after another one finds a process that has not begun to end
TOUCH_AGAIN_S = 60.0  # cleaners of temporary files remove directories that have not been used for hours or days
OF_THE_APPLICATION = "userFiles-"
"""How the name of the directory begins that the driver's JVM makes for files of its application."""
LOGGING_CONFIG = "SPARK_KAFKA_GROUP_LOGGING"
"""Environment variable: path of a file for :func:`logging.config.fileConfig`. Without it warnings go to stderr."""


def prepare(stop: Callable[[], None]) -> None:
    """Make this process end in order, and configure its log; a no-op outside Spark's own Python processes. `stop`: the
    reader's. Called at the end once more: a signal may come when Spark's runner is just about to call it."""
    if not SparkFiles._is_running_on_worker:
        return
    atexit.register(stop)
    ending = _Ending()
    signal.signal(signal.SIGTERM, ending.came)
    signal.signal(signal.SIGINT, _ignored)
    gc.freeze()  # modules stay: a full collection at each trigger need not look at them
    configure_logging()
    # A directory that the driver's JVM removes when its session stops.
    directory = next(iter(_existing_directories()), None)
    if directory is not None:
        _find_shipped_modules(directory)
    watch = threading.Thread(
        target=_end_without, args=(directory, os.getppid()), name="groupkafka-session", daemon=True
    )
    watch.start()


def configure_logging() -> None:
    """Log where the environment says; a no-op outside Spark's own Python processes."""
    path = os.environ.get(LOGGING_CONFIG)
    if path and SparkFiles._is_running_on_worker:
        import logging.config

        logging.config.fileConfig(path, disable_existing_loggers=False)


def shared_directory() -> Path | None:
    """A directory that this application's processes on the driver share, as long as it runs; None outside Spark. Spark
    names one below it to sources, which need not exist, and to sinks, if the session has artifacts."""
    found = _existing_directories() if SparkFiles._is_running_on_worker else []
    of_the_application = (path for path in found if os.path.basename(path).startswith(OF_THE_APPLICATION))
    directory = next(of_the_application, found[0] if found else None)
    return None if directory is None else Path(directory)


def _existing_directories() -> list[str]:
    """The directory that Spark names to this process, and its parent, as far as they exist."""
    files = SparkFiles._root_directory
    candidates = [files, os.path.dirname(files)] if files else []
    return [path for path in candidates if os.path.isdir(path)]


def _find_shipped_modules(directory: str) -> None:
    """Let modules of --py-files be imported where Spark's Python path has no folder: from `directory`."""
    named = SparkFiles._root_directory
    if named and named != directory:
        shipped = [
            directory + path[len(named) :] for path in sys.path if path == named or path.startswith(named + os.sep)
        ]
        # Python has not looked there before, so no importlib.invalidate_caches(): that reads the directories of
        # pyspark.zip and of Spark's jar again, which takes longer than joining the group.
        sys.path += [path for path in shipped if path not in sys.path]


def _end_without(directory: str | None, parent: int) -> None:
    """End this process, in order, when `directory` or its parent is gone; until then, have the directory look used."""
    touched = float("-inf")
    while os.getppid() == parent and (directory is None or os.path.isdir(directory)):
        if directory is not None and time.monotonic() - touched >= TOUCH_AGAIN_S:
            touched = time.monotonic()
            _touch(Path(directory))
        time.sleep(SESSION_CHECK_S)
    if os.getppid() == parent:
        log.info("the Spark session was stopped: ending")
    else:
        log.info("Spark's JVM has ended: ending")
    while True:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(AGAIN_AFTER_S + SESSION_CHECK_S)


def _touch(directory: Path) -> None:
    # Spark removes the directory, and sources their files, at any time: in the middle of a listing, too.
    below: list[Path] = []
    with contextlib.suppress(OSError):
        below += directory.glob(f"{READERS_FOLDER}/**/*")
    for path in (directory, directory / READERS_FOLDER, *below):
        with contextlib.suppress(OSError):
            os.utime(path)


def ignore_signals() -> None:
    """Let no signal interrupt a stop() that has begun; a no-op outside Spark's own Python processes."""
    if SparkFiles._is_running_on_worker and threading.current_thread() is threading.main_thread():
        for number in COMING:
            # Not SIG_IGN: Python prints an OSError about a signal that came just before it.
            signal.signal(number, _ignored)


def _ignored(number: int, frame: FrameType | None) -> None:
    pass


class _Ending:
    """Raises Terminated for a signal, and not for the ones right after it.

    1. Spark sends SIGTERM. 2. Terminated ends the call under way, and stop() leaves the group. 3. Spark sends SIGTERM
    again, within 2 ms: that one must not interrupt stop(), whose beginning lets signals be ignored.

    1. SIGTERM comes while Python runs a finalizer, such as ``__del__``. 2. Python prints Terminated, and goes on as if
    nothing had been raised. 3. A later SIGTERM raises it again.
    """

    def __init__(self) -> None:
        self._came_s = float("-inf")

    def came(self, number: int, frame: FrameType | None) -> None:
        now_s = time.monotonic()
        if now_s - self._came_s < AGAIN_AFTER_S:
            return
        self._came_s = now_s
        os.environ[NO_TRACEBACK] = "1"  # where it was is of no interest, and Spark logs it when others send SIGTERM
        raise Terminated(128 + number)
