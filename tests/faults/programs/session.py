"""What the programs of runs have in common: their environment, their arguments for Spark, and the session they make."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from faults import PYTHONPATH


def environment(tmp: Path) -> dict[str, str]:
    """Variables of a program whose temporary files are in a folder."""
    # By VFORK the JVM starts commands without helper processes, which may keep its sockets open when it is killed.
    java = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djdk.lang.Process.launchMechanism=VFORK -Djava.io.tmpdir={tmp}"
    archive = Path(sys.executable).parents[1] / "spark.jsa"
    return {
        "PYTHONPATH": PYTHONPATH,
        "TMPDIR": str(tmp),
        "JAVA_TOOL_OPTIONS": java,
        "PYTHONWARNINGS": "ignore",
    } | ({"SPARK_SUBMIT_OPTS": f"-XX:SharedArchiveFile={archive} -Xlog:disable"} if archive.exists() else {})


def add_arguments(parser: argparse.ArgumentParser, master: str) -> None:
    """Those of :func:`session`."""
    parser.add_argument("--master", default=master)
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark")
    parser.add_argument("--jars", default="")
    parser.add_argument("--tmp", default=tempfile.gettempdir(), help="for temporary files")


def session(
    args: argparse.Namespace,
    settings: dict[str, str],
    cluster: Callable[[Mapping[str, str], str], str] | None = None,
) -> SparkSession:
    """A session with these settings, and those that the arguments give.

    Parameters
    ----------
    cluster
        Starts a cluster with settings and a folder for temporary files, and returns its master; None for --master.
    """
    address = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    common = {
        "spark.ui.enabled": "false",
        "spark.driver.host": address,
        "spark.driver.bindAddress": address,
        "spark.local.dir": args.tmp,
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.streaming.minBatchesToRetain": "1000000",  # what ran in which batch is read from the checkpoint
        "spark.sql.shuffle.partitions": "2",
    }
    given = dict(setting.split("=", 1) for setting in args.conf)
    jars = {"spark.jars": args.jars} if args.jars else {}
    whole = common | settings | given | jars
    master = args.master if cluster is None else cluster(whole, args.tmp)
    spark = SparkSession.builder.config(map=whole).master(master).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
