"""The pyspark that the package works with, the Java that Spark and Kafka need, and the Python of Spark's workers.

Spark starts ``python3`` of PATH unless it is asked for another one, also where the program itself runs in an
environment. All that it says then is that it does not know the source.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from spark_kafka_group.errors import SparkVersionError, WorkersPythonError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


LOWEST, BELOW = (4, 2), (5, 0)
INSTALL = "pip install 'pyspark>=4.2,<5'"
NO_JAVA = "Kafka and Spark need Java 17 or newer: install it, or set JAVA_HOME"
STARTED_BY_A_JVM = "PYTHON_WORKER_FACTORY_", "PYSPARK_GATEWAY_PORT"
"""How names of environment variables begin that Spark's JVM gives the Python processes it starts."""
BY_CONNECT = "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"
VECTORS = "jdk.incubator.vector"
"""A module of Java with which Spark starts each JVM; runtimes that were made smaller lack it."""


def is_supported(version: str) -> bool:
    """Whether that version of pyspark has what the package needs of it."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is not None and LOWEST <= (int(numbers[1]), int(numbers[2])) < BELOW


def require_supported() -> None:
    """Look at the pyspark of this process. Raises SparkVersionError when there is none, or it is too old or too new."""
    try:
        import pyspark
    except ImportError:
        raise SparkVersionError(f"spark-kafka-group needs pyspark, which is not installed: {INSTALL}") from None
    if not is_supported(pyspark.__version__):
        raise SparkVersionError(
            f"spark-kafka-group needs pyspark {_text(LOWEST)} or newer, below {_text(BELOW)}, and "
            f"{pyspark.__path__[0]} is {pyspark.__version__}: {INSTALL}, or use a Spark of one of these versions"
        )


def java() -> str:
    """The java command. Raises RuntimeError when there is none, or it is older than 17."""
    home = os.environ.get("JAVA_HOME")
    command = _java_command()
    if command is None:
        raise RuntimeError(
            f"JAVA_HOME is {home}, which has no bin/java: set it to a Java 17 or newer, or unset it"
            if home
            else NO_JAVA
        )
    output = version_of(command)
    version = re.search(r'version "(\d+)', output)
    if version is None or int(version[1]) < 17:
        raise RuntimeError(f"Kafka and Spark need Java 17 or newer, but {command} says: {output.splitlines()[:1]}")
    return command


@functools.cache
def version_of(command: str) -> str:
    """What a java command reports as its version."""
    output = subprocess.run([command, "-version"], capture_output=True, text=True, check=False).stderr
    return "".join(line for line in output.splitlines(keepends=True) if not line.startswith("Picked up "))


def warn_without_java() -> None:
    """Warn a program that will start Spark; no command, client of Spark Connect, or process that Spark started."""
    command = any(word == "spark_kafka_group" or word.endswith("/groupkafka") for word in sys.orig_argv)
    beside = any(name.startswith(STARTED_BY_A_JVM + BY_CONNECT) for name in os.environ)
    if not command and not beside and _java_command() is None:
        warnings.warn(NO_JAVA, RuntimeWarning, stacklevel=3)


def why_no_jvm() -> str:
    """Why Spark's JVM ended before it served this program."""
    try:
        command = java()
    except RuntimeError as error:
        return str(error)
    modules = subprocess.run([command, "--list-modules"], capture_output=True, text=True, check=False).stdout
    if VECTORS not in modules:
        return f"{command} lacks the module {VECTORS}, which Spark asks for: install a whole Java, 17 or newer"
    return f"Spark's JVM ({command}) ended as it started: its own message is above"


def _java_command() -> str | None:
    home = os.environ.get("JAVA_HOME")
    command = Path(home, "bin", "java") if home else None
    return (str(command) if command.exists() else None) if command else shutil.which("java")


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


SOURCE = "groupkafka"
STARTS_WITHIN_S = 60.0
LOOK = "import importlib.util, sys; sys.exit(importlib.util.find_spec('spark_kafka_group') is None)"


def require_found(spark: SparkSession) -> None:
    """Ask Spark whether it finds the source, which it does in the time that the first query would take for it. Raises
    WorkersPythonError when it does not; never with Spark Connect, whose server has a Python of its own."""
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
    """Look whether the Python of tasks can import the package. Raises WorkersPythonError when it cannot."""
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
