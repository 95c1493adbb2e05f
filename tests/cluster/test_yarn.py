"""A query on YARN, in client and in cluster mode, whose executor, driver or application is killed."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from faults.gather import rows_in
from support import committed, members, numbered, options, produce, topic_with

from spark_kafka_group.testing import wait_until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]  # which the start of the cluster is counted in
ROOT = Path(__file__).parents[2]
WITHIN_S = 180


def command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def running(hadoop, main):
    """The JVMs in containers that run this class; not the shells that started them."""
    return [
        pid
        for node in hadoop.nodes
        for pid in hadoop.containers(node)
        if main in command(pid) and command(pid).split(b"\0")[0].endswith(b"/java")
    ]


def test_a_query_in_client_mode_goes_on_when_its_executor_is_killed(on_yarn, hadoop, kafka, group, tmp_path):
    topic = topic_with(kafka, numbered(400, 4), partitions=4)
    query = on_yarn.start(options=options(kafka, topic, group, minPartitions=4), directory=str(tmp_path))
    wait_until(lambda: committed(kafka, group) == {(topic, p): 100 for p in range(4)}, within=WITHIN_S)
    assert [member["client_id"] for member in members(kafka, group)] == ["groupkafka-driver"]
    os.kill(running(hadoop, b"YarnCoarseGrainedExecutorBackend")[0], signal.SIGKILL)
    produce(kafka, topic, numbered(400, 4, first=400))
    wait_until(lambda: committed(kafka, group) == {(topic, p): 200 for p in range(4)}, within=WITHIN_S)
    on_yarn.stop(query=query)
    wait_until(lambda: members(kafka, group) == [], within=30)
    assert sorted(int(value[1:]) for value in on_yarn.rows(directory=f"{tmp_path}/rows")) == list(range(800))


@pytest.fixture
def submitted(hadoop, installed, kafka, group, tmp_path):
    """Submits the job in cluster mode: the driver runs in a container."""
    started = []

    def submit(topic, attempts=1):
        """Returns the process of spark-submit, and a function that waits for a committed offset in each partition."""
        given = hadoop.settings | {
            "spark.yarn.appMasterEnv.PYSPARK_PYTHON": str(installed.python), "spark.yarn.maxAppAttempts": str(attempts),
        }  # fmt: skip
        theirs = ("spark.driver.", "spark.python.unix.domain.socket.")  # the job sets the latter
        conf = {name: value for name, value in given.items() if not name.startswith(theirs)}
        command = [
            "bash", installed.spark_home / "bin/spark-submit", "--master", "yarn", "--deploy-mode", "cluster",
            "--driver-memory", "512m", "--name", group,
            *[part for pair in conf.items() for part in ("--conf", "=".join(pair))],
            ROOT / "jobs/stream_to_parquet.py", "--bootstrap-servers", kafka.bootstrap_servers, "--group", group,
            "--topics", topic, "--output", tmp_path / "rows", "--checkpoint", tmp_path / "checkpoint",
        ]  # fmt: skip
        with (tmp_path / "log").open("ab") as log:
            process = subprocess.Popen(
                [str(part) for part in command], cwd=tmp_path, stdout=log, stderr=log,
                env=installed.environment(**hadoop.variables),
            )  # fmt: skip
        started.append(process)

        def all_committed(each):
            assert process.poll() is None, (tmp_path / "log").read_text()[-4000:]
            return committed(kafka, group) == {(topic, p): each for p in range(4)}

        return process, lambda each: wait_until(lambda: all_committed(each), within=WITHIN_S)

    yield submit
    for process in started:
        process.kill()
        process.wait()


def test_a_query_in_cluster_mode_goes_on_when_its_executor_is_killed(submitted, hadoop, kafka, group, tmp_path):
    topic = topic_with(kafka, numbered(400, 4), partitions=4)
    process, wait_for = submitted(topic)

    wait_for(100)
    assert [member["client_id"] for member in members(kafka, group)] == ["groupkafka-driver"]
    (driver,) = running(hadoop, b"yarn.ApplicationMaster")
    os.kill(running(hadoop, b"YarnCoarseGrainedExecutorBackend")[0], signal.SIGKILL)
    produce(kafka, topic, numbered(400, 4, first=400))
    wait_for(200)
    os.kill(driver, signal.SIGTERM)
    wait_until(lambda: members(kafka, group) == [], within=30)
    assert process.wait(WITHIN_S) != 0
    assert sorted(int(row.value[1:]) for row in rows_in(tmp_path / "rows")) == list(range(800))


def test_another_attempt_goes_on_in_cluster_mode_until_the_application_is_killed(
    submitted, hadoop, kafka, group, tmp_path
):
    topic = topic_with(kafka, numbered(400, 4), partitions=4)
    process, wait_for = submitted(topic, attempts=2)

    wait_for(100)
    (first,) = running(hadoop, b"yarn.ApplicationMaster")
    (member,) = members(kafka, group)
    os.kill(first, signal.SIGKILL)
    produce(kafka, topic, numbered(400, 4, first=400))
    wait_for(200)
    (again,) = members(kafka, group)
    assert again["group_instance_id"] == member["group_instance_id"]
    assert again["member_id"] != member["member_id"]
    hadoop.kill_application(group)
    assert process.wait(WITHIN_S) != 0
    wait_until(lambda: not running(hadoop, b"yarn.ApplicationMaster"), within=30)
    wait_until(lambda: members(kafka, group) == [], within=30)
    assert sorted(int(row.value[1:]) for row in rows_in(tmp_path / "rows")) == list(range(800))
