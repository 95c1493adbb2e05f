"""Whether the Python that Spark starts for its workers has this package.

Spark starts ``python3`` of PATH unless it is asked for another one, also where the program itself runs in an
environment. All that it says then is that it does not know the source.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from spark_kafka_group.errors import WorkersPythonError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

SOURCE = "groupkafka"
STARTS_WITHIN_S = 60.0
LOOK = "import importlib.util, sys; sys.exit(importlib.util.find_spec('spark_kafka_group') is None)"


def require_found(spark: SparkSession) -> None:
    """Ask Spark whether it finds the source, which it does in the time that the first query would take for it.

    Raises
    ------
    WorkersPythonError
        When it does not; never with Spark Connect, whose server has a Python of its own.
    """
    if not hasattr(spark, "_jsparkSession"):
        return
    if spark._jsparkSession.sessionState().dataSourceManager().dataSourceExists(SOURCE):
        return
    context = spark.sparkContext
    jvm = context._jvm
    assert jvm is not None
    # Not always that of tasks: the JVM looks for the source, by its own environment, before there are any.
    of_jvm = {name: jvm.java.lang.System.getenv(name) for name in ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")}
    python = of_jvm["PYSPARK_DRIVER_PYTHON"] or of_jvm["PYSPARK_PYTHON"] or "python3"
    if not _imports(python, _shipped(context)):
        chosen_by = "PYSPARK_DRIVER_PYTHON" if of_jvm["PYSPARK_DRIVER_PYTHON"] else "PYSPARK_PYTHON"
        raise WorkersPythonError(_cannot_import(python, chosen_by))
    raise WorkersPythonError(
        f"{python}, which Spark starts for its workers, can import spark_kafka_group, but does not find the source by "
        f"itself: install the package there without -e, or call spark.dataSource.register(GroupKafkaDataSource)"
    )


def require_importable(context: SparkContext) -> None:
    """Look whether the Python of tasks can import the package.

    Raises
    ------
    WorkersPythonError
        When it cannot.
    """
    if not _imports(context.pythonExec, _shipped(context)):
        raise WorkersPythonError(_cannot_import(context.pythonExec, "PYSPARK_PYTHON"))


def _shipped(context: SparkContext) -> str:
    """What --py-files and addPyFile have brought, as a search path."""
    from pyspark import SparkFiles

    return os.pathsep.join(os.path.join(SparkFiles.getRootDirectory(), name) for name in context._python_includes or ())


@functools.cache
def _imports(python: str, shipped: str) -> bool:
    path = [shipped, os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path))}
    try:
        looked = subprocess.run(
            [python, "-c", LOOK], env=environment, capture_output=True, check=False, timeout=STARTS_WITHIN_S
        )
    except OSError:
        return False
    except subprocess.TimeoutExpired:  # which says nothing
        return True
    return looked.returncode == 0


def _cannot_import(python: str, chosen_by: str) -> str:
    return (
        f"Spark starts {python} for its workers, which cannot import spark_kafka_group: set the environment variable "
        f"{chosen_by} to a Python that can, as {sys.executable}, before the SparkSession is made"
    )
