"""What brokers see of queries, by their own metrics: which requests, and under which client ids."""

import shutil
import subprocess
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from kafka.protocol.admin import AlterClientQuotasRequest
from support import name, numbered, options, topic_with
from support.java_gateway import JavaProcess

from spark_kafka_group.driver.steps.backlog import ENDS_HOLD_S
from spark_kafka_group.executor.reading.read import read
from spark_kafka_group.executor.writing.sending import routes
from spark_kafka_group.executor.writing.sink_columns import SinkColumns
from spark_kafka_group.executor.writing.write import write
from spark_kafka_group.options import Options
from spark_kafka_group.options.sink_options import SinkOptions
from spark_kafka_group.testing import wait_until
from spark_kafka_group.testing.download import java
from spark_kafka_group.testing.node import free_ports

JCMD = Path(shutil.which(java())).resolve().with_name("jcmd")
pytestmark = pytest.mark.skipif(not JCMD.exists(), reason="a broker's metrics are read with a JDK's jcmd")


class Metrics:
    """A broker's MBeans."""

    def __init__(self, process, java_process):
        (port,) = free_ports(1)
        agent = [f"jmxremote.{setting}" for setting in (f"port={port}", "authenticate=false", "ssl=false")]
        started = [JCMD, str(process.pid), "ManagementAgent.start", "jmxremote.host=127.0.0.1", *agent]
        subprocess.run(started, check=True, stdout=subprocess.DEVNULL)
        self._management = java_process.gateway.jvm.javax.management
        address = self._management.remote.JMXServiceURL(f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{port}/jmxrmi")
        self._server = self._management.remote.JMXConnectorFactory.connect(address).getMBeanServerConnection()

    def requests(self):
        """How many of each kind the broker has handled so far."""
        counted = Counter()
        for named in self._named("kafka.network:type=RequestMetrics,name=RequestsPerSec,*"):
            counted[named.getKeyProperty("request")] += self._server.getAttribute(named, "Count")
        return counted

    def clients(self, of):
        """Client ids that a quota counts."""
        return {named.getKeyProperty("client-id") for named in self._named(f"kafka.server:type={of},client-id=*")}

    def _named(self, pattern):
        return self._server.queryNames(self._management.ObjectName(pattern), None)


@pytest.fixture(scope="module")
def metrics(kafka):
    java_process = JavaProcess()
    yield Metrics(kafka.node(0).process, java_process)
    java_process.stop()


def test_steady_batches_ask_neither_for_positions_nor_for_the_coordinator(
    kafka, group, driver_of, disconnected, metrics
):
    topic = topic_with(kafka, numbered(300, 2), partitions=2)
    driver, settings = driver_of(kafka, topic, group), Options.parse(options(kafka, topic, group))
    disconnected(settings)
    rows = 0

    def batch(start):
        nonlocal rows
        end = driver.latest_offset(start, 10)
        rows += sum(found.num_rows for task in driver.read_tasks(start, end) for found in read(task, settings))
        return end

    offset = batch(batch(driver.initial_offset()))
    before, began_s = metrics.requests(), time.monotonic()
    for _ in range(20):
        offset = batch(offset)
    took_s, made = time.monotonic() - began_s, metrics.requests() - before
    assert (rows, made["OffsetCommit"], made["JoinGroup"]) == (220, 20, 20)
    assert (made["OffsetFetch"], made["FindCoordinator"]) == (0, 0)
    # The ends of logs come by the same request as positions. They are good for this long.
    assert made["ListOffsets"] <= 1 + took_s / ENDS_HOLD_S


def test_a_query_that_has_read_everything_commits_and_joins_no_more(kafka, group, driver_of, metrics):
    driver = driver_of(kafka, topic_with(kafka, numbered(10, 2), partitions=2), group)
    start = driver.initial_offset()
    end = driver.latest_offset(start, None)
    driver.plan(start, end)
    assert driver.latest_offset(end, None) == end
    before = metrics.requests()

    def looked_again():
        assert driver.latest_offset(end, None) == end
        return (metrics.requests() - before)["ListOffsets"] >= 2

    wait_until(looked_again, within=30)
    made = metrics.requests() - before
    assert [made[kind] for kind in ("OffsetCommit", "OffsetFetch", "JoinGroup", "FindCoordinator")] == [0] * 4


@pytest.fixture
def counted(kafka):
    """Has the broker count clients by their ids, as it does while one of them has a quota."""

    def set_quotas(remove):
        entry = AlterClientQuotasRequest.EntryData
        quotas = ("consumer_byte_rate", "producer_byte_rate", "request_percentage")
        request = AlterClientQuotasRequest(
            entries=[entry(
                entity=[entry.EntityData(entity_type="client-id", entity_name="anybody")],
                ops=[entry.OpData(key=key, value=1e9, remove=remove) for key in quotas],
            )],
            validate_only=False,
        )  # fmt: skip
        manager = kafka.admin._manager
        (found,) = manager.run(manager.send, request).entries
        assert found.error_code == 0

    set_quotas(remove=False)
    yield
    set_quotas(remove=True)


def test_driver_and_executors_have_the_users_client_id_each_with_its_role(
    kafka, group, driver_of, disconnected, metrics, counted
):
    client = name("invoices")
    topic = topic_with(kafka, numbered(20, 2), partitions=2)
    named = {"kafka.client.id": client}
    driver, settings = driver_of(kafka, topic, group, **named), Options.parse(options(kafka, topic, group, **named))
    disconnected(settings)
    start = driver.initial_offset()
    end = driver.latest_offset(start, None)
    for task in driver.read_tasks(start, end):
        list(read(task, settings))
    sink = SinkOptions.parse({"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic} | named)
    write([pa.record_batch([pa.array(["v"])], names=["value"])], sink, SinkColumns(value=0))
    routes.close_all()
    ours = {
        of: {found.removeprefix(client) for found in metrics.clients(of) if found.startswith(client)}
        for of in ("Request", "Fetch", "Produce")
    }
    assert ours["Request"] == {"-driver", "-executor"}
    assert ours["Fetch"] >= {"-executor"}
    assert ours["Produce"] == {"-executor"}
