"""docs/windows.md: its program, run as it is written, killed in the middle, and started again."""

import collections
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import committed, name

from spark_kafka_group.testing import __main__ as broker_command
from spark_kafka_group.testing import wait_until
from spark_kafka_group.testing.produce import order

PAGE = (Path(__file__).parents[2] / "docs/windows.md").read_text()


def minutes(numbers):
    """Start, item, number and amount in cents of the minutes' orders, computed apart."""
    counts = collections.Counter()
    for number in numbers:
        fields = json.loads(order(number))
        counts[fields["ordered_at"][:16], fields["item"]] += 1
    return counts


def run(folder, is_done, end):
    """Run the program until `is_done`, and end it by a signal."""
    with (folder / "log").open("w") as log:
        query = subprocess.Popen(
            [sys.executable, "per_minute.py"],
            cwd=folder,
            env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
            stderr=log,
            process_group=0,
        )

    def is_done_and_runs():
        assert query.poll() is None, (folder / "log").read_text()[-2000:]
        return is_done()

    try:
        wait_until(is_done_and_runs, within=200, every=0.5)
        os.killpg(query.pid, end) if end == signal.SIGKILL else query.send_signal(end)
        query.wait(60)
    finally:
        if query.poll() is None:
            os.killpg(query.pid, signal.SIGKILL)


@pytest.mark.timeout(600)
@pytest.mark.soak
def test_the_program_counts_each_minute_once_also_after_a_kill(kafka, spark, tmp_path):
    topic = name("shop")
    (command,) = re.findall(r"^python -m spark_kafka_group.testing (produce .*)$", PAGE, re.MULTILINE)
    words = command.replace("--topic shop", f"--topic {topic}").split()
    assert broker_command.main([*words, "--bootstrap-servers", kafka.bootstrap_servers]) == 0
    (shown,) = re.findall(r"```json\n(.*)\n```", PAGE)
    assert json.loads(shown) == json.loads(order(3))
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    for there, here in (
        ("localhost:9092", kafka.bootstrap_servers),
        ('"shop"', f'"{topic}"'),
        ("10 seconds", "1 second"),
    ):
        assert there in code
        code = code.replace(there, here)
    (tmp_path / "per_minute.py").write_text(code)
    run(tmp_path, lambda: sum(committed(kafka, "per-minute").values()) == 600, signal.SIGKILL)
    kafka.produce(topic, [*map(order, range(600, 900)), b"no JSON"])
    over = minutes(range(900 - 3 * 60))

    def found():
        return spark.read.parquet(str(tmp_path / "per-minute/rows")).collect()

    run(tmp_path, lambda: len(found()) >= len(over), signal.SIGINT)
    assert (tmp_path / "log").read_text().endswith("stopped; left group per-minute\n")
    counted = {(row.start.isoformat()[:16], row.item): row.orders for row in found()}
    assert len(counted) == len(found()), "each minute is there once"
    assert counted == over
