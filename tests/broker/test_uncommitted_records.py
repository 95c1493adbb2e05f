"""Records that were committed, and that a new leader may not send until more of its replicas are back (KIP-966).

1. Ten records are committed, and planned. 2. Their leader is killed before its follower knows that they are. 3. The
follower is elected, and its high watermark stays at 0, as min.insync.replicas is 2. 4. The killed broker comes back.
"""

import logging
import re
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from support import name, numbered, options, produce

from spark_kafka_group.errors import BrokerTimeoutError
from spark_kafka_group.options import Options
from spark_kafka_group.source import GroupKafkaReader, GroupKafkaStreamReader
from spark_kafka_group.testing import KafkaCluster, wait_until
from spark_kafka_group.values.offsets import OffsetRange, ReadTask, TopicPartition
from spark_kafka_group.wire.outage import TaskOutage

pytestmark = pytest.mark.soak

COUNT = 10
BRIEF = {"kafkaConsumer.pollTimeoutMs": 2000, "kafka.fetch.max.wait.ms": 200}
LATE = {"replica.fetch.wait.max.ms": "25000"}
"""A follower hears late how far its log is committed."""


class Warnings(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


@pytest.fixture(scope="module")
def read():
    """Rows and errors of reads that were under way between steps 3 and 4, and what was logged."""
    with KafkaCluster(3, LATE) as kafka, ThreadPoolExecutor() as at_once:
        topic = name("uncommitted")
        kafka.create_topic(topic, partitions=1, replication=2, configs={"min.insync.replicas": "2"})
        produce(kafka, topic, numbered(COUNT, 1))
        killed = kafka.leader(topic, 0)
        kafka.node(killed - 1).kill()
        wait_until(lambda: kafka.leader(topic, 0) not in (-1, killed), within=60)
        warnings = Warnings()
        logging.getLogger(TaskOutage.__module__).addHandler(warnings)

        def task(reader, **more):
            settings = options(kafka, topic) | BRIEF | {"kafka.client.id": name("client"), "failOnDataLoss": "false"}
            parsed = Options.parse({key: str(value) for key, value in (settings | more).items()})
            planned = ReadTask((OffsetRange(TopicPartition(topic, 0), 0, COUNT),), (0,))
            return at_once.submit(lambda: list(reader(parsed).read(planned)))

        try:
            waits = {fail: task(GroupKafkaStreamReader, failOnDataLoss=fail) for fail in ("true", "false")}
            errors = {
                "batch": task(GroupKafkaReader).exception(60),
                "limited": task(GroupKafkaStreamReader, maxBrokerOutage="2s").exception(60),
            }
            wait_until(lambda: len(warnings.lines) >= len(waits), within=60)
            early = [fail for fail, result in waits.items() if result.done()]
            kafka.node(killed - 1).start()
            rows = {
                fail: [n for b in result.result(60) for n in b["offset"].to_pylist()] for fail, result in waits.items()
            }
        finally:
            logging.getLogger(TaskOutage.__module__).removeHandler(warnings)
        yield SimpleNamespace(early=early, rows=rows, errors=errors, warnings=warnings.lines)


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_a_stream_waits_for_the_replicas_and_loses_nothing(read, fail_on_data_loss):
    assert read.early == []
    assert read.rows[fail_on_data_loss] == list(range(COUNT))


def test_a_stream_that_waits_for_the_replicas_says_what_it_waits_for(read):
    assert any("brokers are away" in line and "min.insync.replicas" in line for line in read.warnings)


@pytest.mark.parametrize("how", ["batch", "limited"])
def test_a_task_that_does_not_wait_fails_and_skips_nothing(read, how):
    assert isinstance(read.errors[how], BrokerTimeoutError)
    # As late as it hears, the follower may know of the first records.
    assert re.search(r"the leader has the records, and may not send those from offset \d on", str(read.errors[how]))
