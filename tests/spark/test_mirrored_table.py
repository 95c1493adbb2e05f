"""docs/change-data-capture.md: its program keeps a Delta table equal to the database's, also when it is killed."""

import os
import re
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from support import name
from support.day_of_changes import DayOfChanges, as_json_with_schemas

from spark_kafka_group.testing import wait_until

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/change-data-capture.md").read_text()
PROGRAM, READ = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[:2]
EVENTS = int(os.environ.get("EVENTS", 1_000_000))
DYING = """\
import os, signal

def dying(save):
    def saved(changes, batch_id):
        save(changes, batch_id)
        if batch_id == 3:
            os.killpg(0, signal.SIGKILL)

    return saved
"""


@pytest.fixture
def day(kafka):
    """A topic with a day of changes, and the day."""
    from confluent_kafka import Producer

    topic, day = name("shop.public.orders"), DayOfChanges(11, EVENTS, EVENTS // 10)
    kafka.create_topic(topic, partitions=3)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "compression.type": "lz4", "linger.ms": 50})
    records = as_json_with_schemas(day)
    while some := list(islice(records, 50_000)):
        for record in some:
            producer.produce(topic, record.value, record.key, record.partition)
        producer.flush()
    return topic, day


@pytest.fixture
def program(kafka, group, tmp_path):
    """Starts the page's program."""
    started = []

    def start(topic, code=PROGRAM):
        for there, here in (
            ("localhost:9092", kafka.bootstrap_servers), ("shop.public.orders", topic), ("orders-table", group),
            ("/data/", f"{tmp_path}/"), ("SparkSession.builder", 'SparkSession.builder.master("local[2]")'),
            ('.option("kafka.group.id"', f'.option("maxOffsetsPerTrigger", {EVENTS // 10}).option("kafka.group.id"'),
            (".foreachBatch", ".trigger(availableNow=True).foreachBatch"),
        ):  # fmt: skip
            assert there in code
            code = code.replace(there, here)
        (tmp_path / "program.py").write_text(code)
        with (tmp_path / "said").open("ab") as said:
            process = subprocess.Popen(
                [sys.executable, "program.py"], cwd=tmp_path, stdout=said, stderr=said, start_new_session=True,
                env=os.environ | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)},
            )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.timeout(3000)
@pytest.mark.soak
def test_the_table_is_equal_to_the_databases_after_a_day_with_two_kills(program, day, tmp_path):
    deltalake = pytest.importorskip("deltalake")
    topic, day = day
    table, said = str(tmp_path / "orders"), tmp_path / "said"

    def version():
        return deltalake.DeltaTable(table).version()

    killed = program(topic, DYING + PROGRAM.replace("foreachBatch(save)", "foreachBatch(dying(save))"))
    assert killed.wait(1200) == -signal.SIGKILL, said.read_text()[-4000:]
    written = version()
    killed = program(topic)
    wait_until(lambda: killed.poll() is not None or version() > written + 2, within=1200)
    assert killed.poll() is None, said.read_text()[-4000:]
    os.killpg(killed.pid, signal.SIGKILL)
    assert program(topic).wait(1200) == 0, said.read_text()[-4000:]
    names = {"DeltaTable": deltalake.DeltaTable, "TABLE": table}
    exec(READ, names)
    rows = names["rows"]
    at = rows["at"].cast("timestamp[us]").cast("int64")
    found = zip(
        *(rows[column].to_pylist() for column in ("id", "customer", "amount", "state")), at.to_pylist(), strict=True
    )
    found = {key: tuple(row) for key, *row in found}
    assert len(found) == rows.num_rows
    assert found == day.table()
