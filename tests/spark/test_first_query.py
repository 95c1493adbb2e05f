"""README's first query, and the commands around it, run as they are written, but for the broker's address."""

import re
import shlex
from pathlib import Path

import pytest
from support import committed

from spark_kafka_group.__main__ import main
from spark_kafka_group.testing import wait_until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def first(kafka):
    """The first block of code of a page after some words."""

    def find(page, words, language=""):
        code = re.search(rf"```{language}\n(.*?)```", (ROOT / page).read_text().partition(words)[2], re.DOTALL)[1]
        assert "localhost:9092" in code
        return code.replace("localhost:9092", kafka.bootstrap_servers)

    return find


def test_the_first_query_reads_the_records_and_its_group_is_seen(spark, kafka, first, capsys):
    kafka.create_topic("orders", partitions=1)
    exec(first("docs/getting-started.md", "Send some records", "python"), {})
    pyspark = {"spark": spark}
    query_of_ten_lines = first("README.md", "## First query", "python")
    assert len(query_of_ten_lines.splitlines()) == 10
    exec(query_of_ten_lines, pyspark)
    try:
        wait_until(lambda: committed(kafka, "billing") == {("orders", 0): 1000}, within=120)
        command = shlex.split(first("README.md", "While it runs"))
        assert command[:3] == ["python", "-m", "spark_kafka_group"]
        assert main(command[3:]) == 0
        assert re.search(r"^orders +0 +1000 +1000 +0 ", capsys.readouterr().out, re.MULTILINE)
    finally:
        pyspark["query"].stop()
