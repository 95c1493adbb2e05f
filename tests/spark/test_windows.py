"""docs/windows.md: its program, run as it is written, killed in the middle, and started again."""

import collections
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

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


def run(kafka, folder, committed_records, end, before=lambda: None):
    """Run the program until that many records are committed, and end it."""
    with (folder / "log").open("w") as log:
        query = subprocess.Popen(
            [sys.executable, "per_minute.py"],
            cwd=folder,
            env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
            stderr=log,
            process_group=0,
        )

    def is_committed():
        assert query.poll() is None, (folder / "log").read_text()[-2000:]
        return sum(committed(kafka, "per-minute").values()) == committed_records

    try:
        wait_until(is_committed, within=200)
        before()
        os.killpg(query.pid, end) if end == signal.SIGKILL else query.send_signal(end)
        query.wait(60)
    finally:
        if query.poll() is None:
            os.killpg(query.pid, signal.SIGKILL)


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
    code = code.replace(
        'session("per-minute")', 'session("per-minute")\n    spark.conf.set("spark.sql.shuffle.partitions", 2)'
    )
    (tmp_path / "per_minute.py").write_text(code)
    run(kafka, tmp_path, 600, signal.SIGKILL, lambda: kafka.produce(topic, [*map(order, range(600, 900)), b"no JSON"]))
    run(kafka, tmp_path, 901, signal.SIGINT)
    assert (tmp_path / "log").read_text().endswith("stopped; left group per-minute\n")
    rows = spark.read.parquet(str(tmp_path / "per-minute/rows")).collect()
    found = {(row.start.isoformat()[:16], row.item): row.orders for row in rows}
    assert len(found) == len(rows), "each minute is there once"
    over = minutes(range(900 - 3 * 60))
    assert found.items() >= over.items()
    assert found.items() <= minutes(range(900)).items()
