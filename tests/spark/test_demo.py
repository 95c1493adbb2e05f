"""`make demo`: it counts right, and whatever ends in it, its last line says what happened and what to do."""

import json
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from spark_kafka_group.testing import wait_until

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def demo(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "jobs"))
    import demo

    return demo


@pytest.mark.parametrize(
    ("orders", "elsewhere", "complete"),
    [([0, 1, 2], [], True), ([0, 2], [1], True), ([0, 2], [], False), ([0, 1, 2], [1], False), ([0, 1, 1], [], False)],
)
def test_the_demo_compares_what_was_sent_with_what_is_in_the_files(demo, tmp_path, orders, elsewhere, complete):
    values = [demo.event(number, random.Random(0))[1] for number in orders]
    for file in ("part", "of-a-killed-batch"):
        parquet.write_table(pa.table({"value": values}), tmp_path / f"{file}.parquet")
    (tmp_path / "_spark_metadata").mkdir()
    listed = json.dumps({"path": f"file://{tmp_path}/part.parquet", "action": "add"})
    (tmp_path / "_spark_metadata/0").write_text(f"v1\n{listed}")
    assert demo.count(tmp_path, elsewhere, 3) is complete


@pytest.mark.soak
def test_the_demo_ends_well():
    run = subprocess.run(
        [sys.executable, ROOT / "jobs/demo.py", "--records", "20000"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    for shown in (
        "two members now",
        "a-python-consumer",
        "it went on, ",
        "stopped; left group billing",
        "none lost, none twice",
    ):
        assert shown in run.stdout
    assert max(len(line) for line in run.stdout.splitlines() if "/tmp" not in line) <= 80
    assert not re.search("Traceback|WARN|ERROR", run.stdout + run.stderr)
    verify = re.findall(r"^  (\S+/groupkafka verify .*)$", run.stdout, re.MULTILINE)[0]
    checked = subprocess.run(verify.split(), cwd=ROOT, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout.splitlines()[-1]) == (0, "no violations")


@pytest.mark.parametrize(
    ("lines", "code", "what"),
    [
        (["at Worker.java", "orders: topic does not exist: create it"], 1, "orders: topic does not exist: create it"),
        (["SparkException: Python worker failed to connect back.", "at x"], 1, "try again while the machine does less"),
        (["one"], -9, "it was killed by SIGKILL: perhaps memory was short"),
        ([], 3, "exit code 3"),
    ],
)
def test_a_query_that_ended_says_why_in_a_sentence(demo, lines, code, what):
    error = demo.QueryEndedError(lines, code, Path("/tmp/spark.log"))
    assert str(error).startswith("the streaming query ended by itself: ")
    assert str(error).endswith(f"{what}. Its log: /tmp/spark.log")
    assert error.too_slow is ("limit of 10 s" in str(error))


def running(temporary, **variables):
    """The demo, whose files are in `temporary`."""
    return subprocess.Popen(
        [sys.executable, ROOT / "jobs/demo.py", "--records", "20000"],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(temporary)} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def processes_of(temporary, words):
    """Ids of the processes whose command has these words and a path in `temporary`."""
    commands = {path.parent.name: path for path in Path("/proc").glob("[0-9]*/cmdline")}

    def text(path, link=False):
        try:
            place = os.readlink(path.with_name("cwd")) if link else ""
            return f"{path.read_bytes().decode(errors='replace')} {place}"
        except OSError:
            return ""

    return [
        int(pid) for pid, path in commands.items() if words in text(path) and str(temporary) in text(path, link=True)
    ]


@pytest.mark.parametrize(
    ("words", "last"),
    [
        ("kafka.Kafka", r"(the demo has failed: )?node 1 ended while it started: it was killed by SIGKILL, "),
        ("SparkSubmit", "the demo has failed: the streaming query ended by itself: "),
        ("jobs/stream_to_parquet.py", "the demo has failed: the streaming query ended by itself: "),
    ],
)
@pytest.mark.soak
def test_whatever_is_killed_the_last_line_says_what_ended(tmp_path, words, last):
    with running(tmp_path) as process:
        pids = wait_until(lambda: process.poll() is None and processes_of(tmp_path, words), within=120)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        output = process.communicate(timeout=120)[0]
    assert process.returncode == 1
    assert re.match(last, output.splitlines()[-1])
    assert "Traceback" not in output
    assert not processes_of(tmp_path, "")


SLOW_ONCE = """
import pathlib, sys, time
if any("streaming_source_runner" in word for word in sys.orig_argv):
    try:
        pathlib.Path({seen!r}).touch(exist_ok=False)
    except FileExistsError:
        pass
    else:
        time.sleep(15)  # longer than Spark waits
"""


@pytest.mark.soak
def test_a_start_that_was_too_slow_for_spark_is_tried_once_more(tmp_path):
    customized = tmp_path / "customized"
    customized.mkdir()
    (customized / "sitecustomize.py").write_text(SLOW_ONCE.format(seen=str(tmp_path / "seen")))
    with running(tmp_path, PYTHONPATH=str(customized)) as process:
        output = process.communicate(timeout=280)[0]
    assert (tmp_path / "seen").exists()
    assert "took more than 10 s to start: once more" in output
    assert process.returncode == 0, output
