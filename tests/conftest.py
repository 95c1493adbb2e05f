"""Spark for tests, and small helpers that several rooms of tests share."""

from __future__ import annotations

import os
import socket

import hypothesis
import pytest
from support import QUICK_CHECKPOINTS, WORKERS_PYTHON

# A busy machine takes as long as it takes.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")

WHOLE = {"cluster", "security"}
"""Rooms whose tests share brokers and Spark sessions that start slowly."""
CELLS = "tests/matrix/test_cells.py"
"""Its tests start Spark for themselves, so each may run on any worker."""
WITH_SPARK = 2
"""Workers that run all rooms; those beyond them run rooms that wait."""
WAITING = {"broker", "chaos", "wire"}
"""Rooms that start no Spark: their tests wait for brokers, timeouts and rebalances most of their time."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Keeps the tests of a file, or of a whole room, on one worker, where they share their fixtures.

    Two workers keep two cores busy with Spark. The others run the rooms that wait, and no other.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Rooms(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.partition("::")[0]
            room = file.split("/")[1]
            if file == CELLS:
                return nodeid
            return f"tests/{room}" if room in WHOLE else file

        def _assign_work_unit(self, node):
            waits = int(node.gateway.id.removeprefix("gw")) >= WITH_SPARK
            fitting = [
                scope for scope in self.workqueue
                if (scope.split("/")[1] in WAITING) == waits or scope.startswith(CELLS)
            ]  # fmt: skip
            if fitting:
                self.workqueue.move_to_end(fitting[0], last=False)
            elif waits:
                node.shutdown()
                return
            super()._assign_work_unit(node)

    return Rooms(config, log)


@pytest.fixture(scope="session")
def token_endpoint():
    """A socket that listens where tokens may be asked for without TLS: Spark's processes learn that when it starts."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        os.environ["SPARK_KAFKA_GROUP_OAUTH_ALLOWED_URLS"] = f"http://127.0.0.1:{listening.getsockname()[1]}/token"
        yield listening


@pytest.fixture(scope="session")
def spark(token_endpoint):
    """A local Spark with the source registered, as it is where the wheel is installed."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = WORKERS_PYTHON  # or Spark looks for the source in whatever python3 is
    session = (
        SparkSession.builder.master("local[2]")
        .appName("tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config(*QUICK_CHECKPOINTS)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
