"""README's first query, and the commands around it, run as they are written, but for the broker's address.

The Python that runs it is of an environment that is not activated: another `python3` is first in PATH, as in cron, in
systemd and in many an IDE.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import committed

from spark_kafka_group.__main__ import main
from spark_kafka_group.testing import __main__ as broker_command
from spark_kafka_group.testing import wait_until

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
AT_HOME = "localhost:9092"


def block(words, language=""):
    """README's first block of code after some words."""
    return re.search(rf"```{language}\n(.*?)```", README.partition(words)[2], re.DOTALL)[1]


@pytest.fixture
def not_activated(monkeypatch, tmp_path):
    """Variables of a process that is started without the environment's `activate`."""
    ours = Path(sys.executable).parent
    path = [folder for folder in os.environ["PATH"].split(os.pathsep) if Path(folder) != ours]
    other = tmp_path / "python3"
    other.symlink_to(sys._base_executable)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_HOME"))}
    return kept | {"PATH": os.pathsep.join([str(tmp_path), *path]), "SPARK_LOCAL_IP": "127.0.0.1"}


def test_the_first_query_shows_the_records_and_its_group_is_seen(kafka, capsys, tmp_path, not_activated):
    start, produce = block("start one on your machine").splitlines()
    assert start == "python -m spark_kafka_group.testing start --port 9092"
    assert shlex.split(produce)[:3] == ["python", "-m", "spark_kafka_group.testing"]
    assert broker_command.main([*shlex.split(produce)[3:], "--bootstrap-servers", kafka.bootstrap_servers]) == 0
    code = block("Save this as `first.py`", "python")
    assert len([line for line in code.splitlines() if line]) == 18
    assert AT_HOME in code
    (tmp_path / "first.py").write_text(code.replace(AT_HOME, kafka.bootstrap_servers))
    with (tmp_path / "shown").open("wb") as shown:
        query = subprocess.Popen(
            [sys.executable, "first.py"], cwd=tmp_path, env=not_activated, stdout=shown, stderr=subprocess.STDOUT
        )
    try:

        def all_committed():
            assert query.poll() is None, (tmp_path / "shown").read_text()[-4000:]
            return sum(committed(kafka, "billing").values()) == 1000

        wait_until(all_committed, within=240)
        assert re.search(
            r"^\| +\d\| +\d+\| +\d+\| *espresso\| *\d+\.\d+\|$", (tmp_path / "shown").read_text(), re.MULTILINE
        )
        describe, top = block("After batch 0, look at the group").replace(AT_HOME, kafka.bootstrap_servers).splitlines()
        assert shlex.split(top)[3] == "top"  # tests/broker/test_top.py runs it
        command = shlex.split(describe)
        capsys.readouterr()
        assert command[:3] == ["python", "-m", "spark_kafka_group"]
        assert main(command[3:]) == 0
        rows = re.findall(r"^orders +\d +(\d+) +(\d+) +0 ", capsys.readouterr().out, re.MULTILINE)
        assert sum(int(current) for current, _ in rows) == 1000
        query.send_signal(signal.SIGINT)
        assert query.wait(60) == 130
        assert (tmp_path / "shown").read_text().endswith("\nstopped; left group billing\n")
    finally:
        query.kill()
        query.wait()
