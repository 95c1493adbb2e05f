"""docs/recipes.md: its code, run as it is written, but for addresses, names and folders.

Recipes of large packages are soak tests, which need ``pip install '.[recipes]'`` first, or are skipped.
"""

import importlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support import numbered, topic_with

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/recipes.md").read_text()


def blocks(heading, language="python"):
    """Blocks of code of one recipe."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```", section, re.DOTALL | re.MULTILINE)


def stream():
    """The stream that all recipes begin with."""
    return re.search(r"```python\n(stream = .*?)```", PAGE, re.DOTALL)[1]


@pytest.fixture
def here(kafka, group, tmp_path):
    """Writes code for the addresses, names and folders of a test."""

    def written(code, topic):
        for before, now in (
            ("localhost:9092", kafka.bootstrap_servers), ('"billing"', f'"{group}"'), ('"orders"', f'"{topic}"'),
            ("/data/", f"{tmp_path}/data/"), ('addPyFile("', f'addPyFile("{tmp_path}/'),
        ):  # fmt: skip
            code = code.replace(before, now)
        return code

    return written


class TestTables:
    """A program is killed in the middle of its writes; in the end the table has each record once."""

    RECORDS = 3000

    @pytest.fixture
    def program(self, kafka, here, tmp_path):
        """Starts a recipe's program; `dies` says when it kills itself."""
        topic = topic_with(kafka, numbered(self.RECORDS, 3))
        started = []

        def start(heading, number, dies):
            made = 'spark = SparkSession.builder.master("local[2]").getOrCreate()\n'
            code = here(made + stream() + blocks(heading)[number], topic)
            code = code.replace('.option("kafka.group', '.option("maxOffsetsPerTrigger", 300).option("kafka.group')
            code = code.replace(".start(", ".trigger(availableNow=True).start(")
            code = code.replace("foreachBatch(save)", "foreachBatch(dying(save))")
            file = tmp_path / "program.py"
            file.write_text(f"DIES = {dies!r}\n{DYING}{code}query.awaitTermination()\n")
            environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
            with (tmp_path / "said").open("ab") as said:
                process = subprocess.Popen(
                    [sys.executable, file],
                    cwd=tmp_path,
                    env=environment,
                    stdout=said,
                    stderr=said,
                    start_new_session=True,
                )
            started.append(process)
            return process

        yield start
        for process in started:
            kill(process)

    def all_kills(self, program, heading, number, said):
        for dies in ("in_a_write", "in_a_write", "after_batch_5"):
            assert program(heading, number, dies).wait(240) == -signal.SIGKILL, said.read_text()[-4000:]
        assert program(heading, number, "never").wait(240) == 0, said.read_text()[-4000:]

    @pytest.mark.timeout(900)
    @pytest.mark.soak
    def test_delta_without_a_jar_has_each_record_once(self, program, tmp_path):
        deltalake = pytest.importorskip("deltalake")
        self.all_kills(program, "Delta Lake", 2, tmp_path / "said")
        table = deltalake.DeltaTable(str(tmp_path / "data/orders"))
        assert once(table.to_pyarrow_table()) == self.RECORDS

    @pytest.mark.timeout(900)
    @pytest.mark.soak
    def test_iceberg_has_each_record_once(self, program, tmp_path):
        pyiceberg = pytest.importorskip("pyiceberg.catalog")
        (tmp_path / "data").mkdir()
        self.all_kills(program, "Iceberg", 0, tmp_path / "said")
        where = f"{tmp_path}/data"
        catalog = {"type": "sql", "uri": f"sqlite:///{where}/catalog.db", "warehouse": f"file://{where}/warehouse"}
        table = pyiceberg.load_catalog("lake", **catalog).load_table("shop.orders")
        assert once(table.scan().to_arrow()) == self.RECORDS
        assert left_over(tmp_path / "data", table.inspect.data_files()["file_path"].to_pylist())


DYING = """\
import glob
import os
import signal
import threading
import time

from pyspark.sql import SparkSession


def files():
    return set(glob.glob("data/**/*.parquet*", recursive=True))


def die_in_a_write(before):
    while files() <= before:
        time.sleep(0.0005)
    os.killpg(0, signal.SIGKILL)


def dying(save):
    def saved(rows, batch_id):
        save(rows, batch_id)
        if DIES == f"after_batch_{batch_id}":
            os.killpg(0, signal.SIGKILL)

    return saved


if DIES == "in_a_write":
    threading.Thread(target=die_in_a_write, args=(files(),), daemon=True).start()
"""


def kill(process):
    """Kill a program, and all its processes."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def once(table):
    """Number of rows, if none is there twice."""
    places = set(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
    assert len(places) == table.num_rows
    return table.num_rows


def left_over(data, named):
    """Files of data that a kill left, which the table does not name."""
    return {file.name for file in data.rglob("*.parquet*")} - {Path(file).name for file in named}


def specs():
    """What conf/kubernetes.yaml has, by kind."""
    return {each["kind"]: each["spec"] for each in yaml.safe_load_all((ROOT / "conf/kubernetes.yaml").read_text())}


class TestOnKubernetes:
    @pytest.mark.parametrize("kind", ["Deployment", "CronJob"])
    def test_arguments_are_those_of_the_job(self, kind, monkeypatch):
        pod = self.pod(kind)
        command = pod["containers"][0]["args"]
        assert command[:4] == ["python", "-m", "spark_kafka_group", "jobs"]
        monkeypatch.syspath_prepend(str(ROOT / "jobs"))
        monkeypatch.setattr(sys, "argv", command[4:])
        parsed = importlib.import_module(command[4].replace("-", "_")).arguments()
        assert parsed.topics == "orders"
        assert parsed.output.startswith(pod["containers"][0]["volumeMounts"][0]["mountPath"])

    @pytest.mark.parametrize("kind", ["Deployment", "CronJob"])
    def test_a_pod_has_the_time_that_an_orderly_end_may_take(self, kind):
        from spark_kafka_group.tools import ending

        assert self.pod(kind)["terminationGracePeriodSeconds"] > ending.STOPS_S + ending.LEAVES_S

    def test_two_pods_of_one_kind_never_run_at_once(self):
        assert specs()["Deployment"]["strategy"] == {"type": "Recreate"}
        assert specs()["CronJob"]["concurrencyPolicy"] == "Forbid"

    def pod(self, kind):
        spec = specs()[kind]
        return (spec["jobTemplate"]["spec"] if kind == "CronJob" else spec)["template"]["spec"]
