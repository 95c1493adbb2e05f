"""Jars of Spark's own kafka source, and of Delta, for the installed pyspark, downloaded once."""

import hashlib
import subprocess
from pathlib import Path

import pyspark

from spark_kafka_group.spark.installation import java
from spark_kafka_group.testing.download import cache_directory, once, retrieve

SCALA = "2.13"
SOURCE = f"spark-sql-kafka-0-10_{SCALA}"
APART = [("org.apache.kafka", "kafka-clients", "3.9.2"), ("org.apache.commons", "commons-pool2", "2.13.1")]
"""What the source needs, where its module for delegation tokens is not to be had and a stand-in is compiled for it."""
DELTA = "4.4.0"
STANDIN = Path(__file__).parent / "TokenProvider.scala"


def connector_jars():
    """Paths of the jars, for spark.jars.

    Raises
    ------
    RuntimeError
        When they cannot be downloaded.
    """
    version = pyspark.__version__
    edition = hashlib.sha256(STANDIN.read_bytes()).hexdigest()[:8]
    folder = cache_directory() / f"spark-{version}" / f"{SOURCE}-{edition}"
    return sorted(once(folder, _retrieve_all, f"downloading Spark's kafka source {version}, once").glob("*.jar"))


def delta_jars():
    """As :func:`connector_jars`, for format("delta")."""
    version = pyspark.__version__
    modules = f"delta-spark_{version.rpartition('.')[0]}_{SCALA}", "delta-storage"

    def all_of_them(parts):
        for module in modules:
            retrieve("io.delta", module, DELTA, parts, "-notransitive", attempts=1)

    folder = cache_directory() / f"spark-{version}" / f"delta-{DELTA}"
    return sorted(once(folder, all_of_them, f"downloading Delta {DELTA}, once").glob("*.jar"))


def _retrieve_all(parts):
    version = pyspark.__version__
    try:
        retrieve("org.apache.spark", SOURCE, version, parts, attempts=1)
    except RuntimeError:
        # One module after the other: on some mirrors one is missing.
        retrieve("org.apache.spark", SOURCE, version, parts, "-notransitive")
        for module in APART:
            retrieve(*module, parts, "-notransitive")
        _compile(parts)


def _compile(parts):
    spark = Path(pyspark.__file__).parent / "jars"
    every = ":".join(map(str, spark.glob("*.jar")))
    command = [java(), "-cp", f"{spark}/*", "scala.tools.nsc.Main", "-nobootcp", "-cp", every]
    target = parts / "lib" / "token-provider.jar"
    done = subprocess.run([*command, "-d", str(target), str(STANDIN)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{STANDIN} cannot be compiled:\n{done.stdout}{done.stderr}")
