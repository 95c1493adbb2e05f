"""Spark for tests, and small helpers that several rooms of tests share."""

from __future__ import annotations

import os
import socket
import sys

import hypothesis
import pytest
from support import QUICK_CHECKPOINTS

# A busy machine takes as long as it takes. `make soak` has more examples.
ANY_MACHINE = hypothesis.settings(deadline=None, database=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile("any machine", ANY_MACHINE)
hypothesis.settings.register_profile("many examples", ANY_MACHINE, max_examples=2000)
hypothesis.settings.load_profile("any machine")

WHOLE = {"cluster", "registry", "security"}
"""Rooms whose tests share brokers, registries and Spark sessions that start slowly."""
CELLS = "tests/faults/test_cells.py"
"""Its tests start Spark for themselves, so each may run on any worker."""
WITH_SPARK = 3
"""Workers that run all rooms; those beyond them run rooms that wait."""
WAITING = ("tests/broker", "tests/wire", "tests/faults/test_chaos.py", "tests/faults/test_newer_members.py")
"""Rooms and files that start no Spark: their tests wait for brokers, timeouts and rebalances most of their time."""
ON_THREE_BROKERS = {
    "test_a_broker_that_takes_a_group_over_has_its_offsets_from_the_first_answer_on",
    "test_a_coordinator_that_dies_takes_neither_member_nor_generation_with_it",
    "test_a_coordinator_that_moves_is_no_rebalance",
    "test_a_group_is_led_by_the_node_that_kafka_finds_for_it",
    "test_a_group_whose_coordinator_has_moved_or_does_not_run_is_found",
    "test_a_leader_that_dies_while_it_is_read_from_is_followed",
    "test_a_leader_that_goes_away_and_comes_back_has_each_record_once",
    "test_a_leader_with_too_few_replicas_waits_for_the_others",
    "test_all_ranges_of_a_task_are_read_in_offset_order_from_every_leader",
    "test_each_letter_is_there_once_when_the_leader_of_the_dead_letters_is_killed_meanwhile",
    "test_a_coordinator_that_dies_is_no_rebalance",
    "test_three_nodes_go_on_when_one_is_killed",
    "tests/broker/test_leaderless.py",
    "tests/broker/test_transactions_leaderless.py",
    "tests/broker/test_quick_leaving.py",
    "tests/broker/test_sender_on_three_nodes.py",
    "tests/broker/test_silent_leaders.py",
    "tests/broker/test_transactions_outages.py",
}
"""Tests of `kafka3`, or the files of which all are. They run on one worker, one after the other: these brokers cost
processor time as long as they live, so they are started once, and stopped after the last of these tests."""


def is_on_three_brokers(nodeid):
    """Whether a test is one of these; a scheduler knows tests by their names alone."""
    file, *_, test = nodeid.split("::")
    return file in ON_THREE_BROKERS or test.partition("[")[0] in ON_THREE_BROKERS


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Keeps the tests of a file, or of a whole room, on one worker, where they share their fixtures.

    Three workers keep two cores busy with Spark. The others run the rooms that wait, and no other.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Rooms(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.partition("::")[0]
            room = file.split("/")[1]
            if file == CELLS:
                return nodeid
            if is_on_three_brokers(nodeid):
                return "tests/broker/on three"
            return f"tests/{room}" if room in WHOLE else file

        def _assign_work_unit(self, node):
            waits = int(node.gateway.id.removeprefix("gw")) >= WITH_SPARK
            fitting = [
                scope for scope in self.workqueue
                if scope.startswith(WAITING) == waits or scope.startswith(CELLS)
            ]  # fmt: skip
            if fitting:
                self.workqueue.move_to_end(fitting[0], last=False)
            elif waits:
                node.shutdown()
                return
            super()._assign_work_unit(node)

    return Rooms(config, log)


def pytest_collection_modifyitems(items):
    """Find tests that the list above lacks."""
    for item in items:
        if "kafka3" in getattr(item, "fixturenames", ()) and not is_on_three_brokers(item.nodeid):
            raise pytest.UsageError(f"{item.nodeid} uses kafka3: add it to ON_THREE_BROKERS in tests/conftest.py")


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """Stop the three brokers on the worker that has run their tests: it gets no other of them."""
    if not hasattr(item.config, "workerinput") or not is_on_three_brokers(item.nodeid):
        return
    if (nextitem is None or not is_on_three_brokers(nextitem.nodeid)) and "kafka3" in item.funcargs:
        item.funcargs["kafka3"].stop()


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

    os.environ["PYSPARK_PYTHON"] = sys.executable  # or Spark looks for the source in whatever python3 is
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
