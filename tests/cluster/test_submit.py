"""jobs/ through spark-submit, as a newcomer submits them to a cluster."""

import json
import subprocess
from pathlib import Path

import pytest
from deployed import SETTINGS
from support import committed, numbered, topic_with

pytestmark = pytest.mark.timeout(600)  # which the start of the cluster is counted in
ROOT = Path(__file__).parents[2]


@pytest.mark.soak
def test_stream_to_parquet_with_hooks_shipped_by_py_files(standalone, installed, kafka, group, tmp_path):
    topic = topic_with(kafka, numbered(300, 3))
    notes = tmp_path / "told"
    notes.mkdir()
    conf = SETTINGS | {"spark.executorEnv.TOLD": str(notes)}
    command = [
        "bash", installed.spark_home / "bin/spark-submit", "--master", standalone.url,
        "--py-files", Path(__file__).with_name("hooks_of_a_user.py"),
        *[part for name, value in conf.items() for part in ("--conf", f"{name}={value}")],
        ROOT / "jobs/stream_to_parquet.py", "--bootstrap-servers", kafka.bootstrap_servers,
        "--group", group, "--topics", topic, "--available-now",
        "--output", tmp_path / "rows", "--checkpoint", tmp_path / "checkpoint",
        "--option", "interceptors=hooks_of_a_user:Telling",
    ]  # fmt: skip
    ended = subprocess.run(
        [str(part) for part in command],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=400,
        env=installed.environment(TOLD=str(notes)),
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]
    assert "records       300" in ended.stdout
    assert committed(kafka, group) == {(topic, p): 100 for p in range(3)}
    workers = [str(worker.directory) for worker in standalone.alive()]
    (consumed,) = notes.glob("consumed-*")
    directory, python, package = json.loads(consumed.read_text())
    assert directory.startswith(tuple(workers))
    assert python == str(installed.python)
    assert package == str(installed.packages / "spark_kafka_group/__init__.py")
    assert (notes / "committed").read_text() == "[100, 100, 100]"
