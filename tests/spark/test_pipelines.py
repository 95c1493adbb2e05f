"""docs/pipelines.md: its pipeline, run by spark-pipelines as it is written, but for addresses, names and folders."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE, STDOUT

import pyarrow.parquet as parquet
import pyspark
import pytest
import yaml
from kafka import KafkaConsumer
from kafka.structs import TopicPartition
from support import committed, end_offset, members, name, produce
from support.day_of_changes import DayOfChanges, as_json_with_schemas, micros
from support.maven import artifact

from spark_kafka_group.testing.download import cache_directory, once

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "pipelines.md").read_text()
COMMAND = Path(sys.executable).with_name("spark-pipelines")
RUN = shlex.split(re.search(r"^spark-pipelines (run .*)$", PAGE, re.MULTILINE)[1])
KEPT = ("HOME", "JAVA_HOME", "JAVA_TOOL_OPTIONS", "LANG", "PATH", "SPARK_SUBMIT_OPTS", "TMPDIR")


def block(language):
    return re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)[1]


def run_in(directory, *arguments, **more):
    """Run the pipeline of a folder; `more` are variables of the environment."""
    variables = {name: os.environ[name] for name in KEPT if name in os.environ}
    variables |= {"PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(Path(pyspark.__file__).parent)}
    variables |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_TESTING": "1"}  # a free port
    command = [COMMAND, *RUN, "--conf", "spark.ui.enabled=false", *arguments]
    return subprocess.run(
        command, cwd=directory, env=variables | more, stdout=PIPE, stderr=STDOUT, text=True, timeout=280
    )


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
        done = run_in(self.directory, *arguments)
        assert done.returncode == 0, done.stdout[-9000:]

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


class TestChangesOfADatabase:
    """docs/change-data-capture.md: its pipelines, as they are written, but for addresses, names and folders."""

    @pytest.fixture
    def truncates(self):
        return True

    @pytest.fixture
    def day(self, truncates):
        return DayOfChanges(5, 2000, 200, truncates)

    @pytest.fixture
    def run(self, kafka, group, tmp_path, day):
        """Runs the page's pipeline, which makes its table by one block of the page or the next."""
        page = (DOCS / "change-data-capture.md").read_text()
        (program, *_), (begin, *ways) = (
            re.findall(r"^```python\n(.*?)^```", part, re.DOTALL | re.MULTILINE)
            for part in page.split("\n## In a declarative pipeline\n")
        )
        topic = name("shop.public.orders")
        kafka.create_topic(topic, partitions=3)
        produce(kafka, topic, as_json_with_schemas(day))
        code = program.partition("\n\ndef save")[0].replace("from deltalake import DeltaTable\n", "")
        for there, here in (
            ("localhost:9092", kafka.bootstrap_servers), ("orders-table", group), ("shop.public.orders", topic),
            ("SparkSession.builder.getOrCreate()", "SparkSession.active()"),
        ):  # fmt: skip
            assert there in code
            code = code.replace(there, here)
        (tmp_path / "transformations").mkdir()
        (tmp_path / "spark-pipeline.yaml").write_text(
            block("yaml").replace("file:///data", f"file://{tmp_path}/storage")
        )

        def run(way, more="", *arguments, **variables):
            table = ways[way].replace('"orders"', '"lake.shop.orders"') if variables else ways[way]
            (tmp_path / "transformations/orders.py").write_text(code + begin + table + more)
            done = run_in(tmp_path, "--conf", "spark.sql.catalogImplementation=in-memory", *arguments, **variables)
            return done.returncode, done.stdout

        return run

    @pytest.fixture
    def found(self, tmp_path):
        """The rows that a view has, by their keys."""

        def read(view):
            rows = parquet.read_table(tmp_path / "spark-warehouse" / view).to_pylist()
            by_key = {row["id"]: (row["customer"], row["amount"], row["state"], micros(row["at"])) for row in rows}
            assert len(by_key) == len(rows)
            return by_key

        return read

    @pytest.mark.soak
    def test_a_view_has_the_rows_of_the_database(self, run, day, found):
        code, said = run(0)
        assert code == 0, said[-9000:]
        assert found("orders") == day.table()

    @pytest.mark.soak
    def test_auto_cdc_asks_for_a_table_that_spark_can_merge_into(self, run):
        code, said = run(1)
        assert code != 0
        assert "AUTOCDC_TARGET_DOES_NOT_SUPPORT_MERGE" in said

    @pytest.mark.parametrize("truncates", [False])
    @pytest.mark.soak
    def test_auto_cdc_has_the_rows_of_the_database(self, run, day, found):
        """In a table of Spark's own tests, until a format for this Spark has tables that Spark merges into."""

        def download(parts):
            (parts / "lib").mkdir()
            artifact("org.apache.spark", "spark-catalyst_2.13", "4.2.0", "tests", parts).rename(parts / "lib/tests.jar")

        folder = once(
            cache_directory() / "spark-4.2.0" / "catalyst-tests", download, "downloading tests of Spark, once"
        )
        copy = """

@dp.materialized_view
def copied() -> DataFrame:
    return spark.read.table("lake.shop.orders")
"""
        catalog = "org.apache.spark.sql.connector.catalog.SharedTablesInMemoryRowLevelOperationTableCatalog"
        code, said = run(
            1, copy, "--conf", f"spark.sql.catalog.lake={catalog}", SPARK_DIST_CLASSPATH=str(folder / "tests.jar")
        )
        assert code == 0, said[-9000:]
        assert found("copied") == day.table()
