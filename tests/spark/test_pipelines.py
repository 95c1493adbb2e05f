"""docs/pipelines.md: its pipeline, run by spark-pipelines as it is written, but for addresses, names and folders."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as parquet
import pyspark
import pytest
import yaml
from kafka import KafkaConsumer
from kafka.structs import TopicPartition
from support import WORKERS_PYTHON, committed, end_offset, members, name

PAGE = (Path(__file__).parents[2] / "docs/pipelines.md").read_text()
COMMAND = Path(sys.executable).with_name("spark-pipelines")
RUN = shlex.split(re.search(r"^spark-pipelines (run .*)$", PAGE, re.MULTILINE)[1])
KEPT = ("HOME", "JAVA_HOME", "JAVA_TOOL_OPTIONS", "LANG", "PATH", "SPARK_SUBMIT_OPTS", "TMPDIR")


def block(language):
    return re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)[1]


class Pipeline:
    """A folder with the page's pipeline, and what it has written."""

    def __init__(self, kafka, group, directory):
        self.kafka, self.group, self.directory = kafka, group, directory
        self.topic, self.output = kafka.create_topic(name("orders"), partitions=2), kafka.create_topic(name("invoices"))
        code = block("python").replace("localhost:9092", kafka.bootstrap_servers).replace('"billing"', f'"{group}"')
        code = code.replace('"subscribe", "orders"', f'"subscribe", "{self.topic}"')
        self.code = directory / "transformations/orders.py"
        self.code.parent.mkdir()
        self.code.write_text(code.replace('"topic": "invoices"', f'"topic": "{self.output}"'))
        spec = yaml.safe_load(block("yaml"))
        spec["storage"] = f"file://{directory}/storage"
        (directory / "spark-pipeline.yaml").write_text(yaml.safe_dump(spec))

    def send(self, *numbers):
        self.kafka.produce(self.topic, [b"%d" % number for number in numbers])

    def run(self, *arguments):
        """Its output, where it succeeds."""
        variables = {name: os.environ[name] for name in KEPT if name in os.environ}
        variables |= {"PYSPARK_PYTHON": WORKERS_PYTHON, "SPARK_HOME": str(Path(pyspark.__file__).parent)}
        variables |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_TESTING": "1"}  # a free port
        done = subprocess.run(
            [COMMAND, *RUN, "--conf", "spark.ui.enabled=false", *arguments],
            cwd=self.directory, env=variables, capture_output=True, text=True, timeout=280,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
        return done.stdout + done.stderr

    @property
    def orders(self):
        """The rows of its table."""
        files = (self.directory / "spark-warehouse/orders").glob("*.parquet")
        return sorted(int(order) for file in files for order in parquet.read_table(file)["order"].to_pylist())

    @property
    def invoices(self):
        """The values in the topic of its sink."""
        tp = TopicPartition(self.output, 0)
        consumer = KafkaConsumer(bootstrap_servers=self.kafka.bootstrap_servers)
        consumer.assign([tp])
        consumer.seek(tp, 0)
        found, end = [], end_offset(self.kafka, self.output)
        while consumer.position(tp) < end:
            found += [record.value for records in consumer.poll(1000).values() for record in records]
        consumer.close()
        return sorted(int(value.removeprefix(b"invoice for ")) for value in found)


@pytest.fixture
def pipeline(kafka, group, tmp_path):
    return Pipeline(kafka, group, tmp_path)


@pytest.mark.soak
def test_a_table_reads_a_topic_and_a_sink_writes_its_rows(pipeline, kafka, group):
    pipeline.send(*range(10))
    pipeline.run("--conf", "spark.sql.catalogImplementation=in-memory")  # quicker, as nothing comes after it
    assert pipeline.orders == pipeline.invoices == list(range(10))
    assert sum(committed(kafka, group).values()) == 10
    assert members(kafka, group) == []


@pytest.mark.timeout(900)
@pytest.mark.soak
def test_the_next_run_goes_on_and_a_full_refresh_starts_as_a_new_query(pipeline, kafka, group):
    pipeline.send(*range(10))
    pipeline.run()
    pipeline.send(10, 11)
    pipeline.run()
    assert pipeline.orders == pipeline.invoices == list(range(12))
    pipeline.send(12)
    pipeline.run("--full-refresh", "orders")
    assert pipeline.orders == list(range(13))
    assert pipeline.invoices == list(range(12))  # Spark leaves its flow where it was in the table of before
    pipeline.code.write_text(pipeline.code.read_text().replace('"startingOffsets", "earliest"', '"maxTasks", "1"'))
    pipeline.send(13)
    pipeline.run("--full-refresh-all")
    assert pipeline.orders == [13]
    assert pipeline.invoices == [*range(12), 13]
    assert sum(committed(kafka, group).values()) == 14
