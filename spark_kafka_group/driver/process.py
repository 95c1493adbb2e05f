"""The process in which Spark runs a stream reader: how it ends, and where its log goes.

Spark ends it with SIGTERM, often twice, and does not call stop(). Python would die of that without running the
runner's ``finally: reader.stop()``, and the member would stay in the group until its session times out.
"""

from __future__ import annotations

import logging.config
import os
import signal
import sys
import threading
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGINT)
LOGGING_CONFIG = "SPARK_KAFKA_GROUP_LOGGING"
"""Environment variable: path of a file for :func:`logging.config.fileConfig`. Without it warnings go to stderr."""


def prepare() -> None:
    """Make this process end well and log where it is told to.

    A no-op outside the main thread: Python has signals only there, and Spark's reader process has only that.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for number in ENDING:
        signal.signal(number, _exit_once)
    path = os.environ.get(LOGGING_CONFIG)
    if path:
        logging.config.fileConfig(path, disable_existing_loggers=False)


def _exit_once(number: int, frame: FrameType | None) -> None:
    """Raise SystemExit, and let further signals not interrupt the stop() that it leads to."""
    for ending in ENDING:
        signal.signal(ending, signal.SIG_IGN)
    sys.exit(128 + number)
