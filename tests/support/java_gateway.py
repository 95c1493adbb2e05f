"""Kafka's own classes, in a JVM that lives as long as the tests that ask it."""

from __future__ import annotations

import gc
import subprocess
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError as JavaError

from spark_kafka_group.testing import download

__all__ = ["JavaError", "JavaProcess"]


class JavaProcess:
    """A new process, which ends with :meth:`stop` or with this one.

    Parameters
    ----------
    folders
        With jars beside Kafka's.

    Attributes
    ----------
    gateway, java, kafka
        py4j's gateway, and the packages ``java`` and ``org.apache.kafka``.
    """

    def __init__(self, *folders: Path) -> None:
        (py4j_jar,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
        port, token, self._process = launch_gateway(
            jarpath=str(py4j_jar),
            classpath=":".join(f"{folder}/*" for folder in (download.jars("kafka_2.13"), *folders)),
            javaopts=["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m"],
            java_path=download.java(),
            redirect_stderr=subprocess.DEVNULL,
            die_on_exit=True,
            enable_auth=True,
            return_proc=True,
        )
        self.gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True, auto_close=True)
        )
        self.java: Any = self.gateway.jvm.java
        self.kafka: Any = self.gateway.jvm.org.apache.kafka

    def stop(self) -> None:
        # py4j tells the JVM of each of its objects that is not in use any more. Later, without a JVM, that fails, and
        # fails others: Python's parser does not bear it when the collector happens to run inside of it.
        gc.collect()
        self.gateway.close()
        self._process.kill()  # it has nothing to keep, and its own end once took longer than 30 s
        self._process.wait()
        self._process.stdin.close()
