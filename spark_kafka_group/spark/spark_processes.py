"""What this package does in Spark's Python processes: errors of one sentence, and workers that start quickly."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

from pyspark import SparkFiles

from spark_kafka_group.errors import NO_TRACEBACK, GroupKafkaError, InterceptorError
from spark_kafka_group.spark.hung_up import end_quietly
from spark_kafka_group.spark.loopback import acknowledge_at_once

log = logging.getLogger(__name__)

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
    """Have Spark repeat this package's errors as one sentence, which is all that its users need.

    With the tracebacks of the error and its causes the sentence would be in the middle of a hundred lines. An
    interceptor is the user's code, so its error keeps them. A Spark process ends after an error.
    """
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
