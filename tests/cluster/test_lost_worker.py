"""A worker that dies under a micro-batch."""

import json
import os
import signal
from collections import Counter

import pytest
from support import committed, numbered, options, produce, topic_with

from spark_kafka_group.testing import wait_until

pytestmark = pytest.mark.timeout(600)  # which the start of the cluster is counted in


@pytest.fixture
def two_workers(standalone):
    """The cluster, which is whole again afterwards."""
    yield standalone
    while len(standalone.alive()) < 2:
        standalone.start_worker()
    standalone.wait_for_workers()


def noted(marks):
    """Per stage, task and attempt: the directories it ran in, and the rows it saw."""
    found = {}
    for mark in marks.glob("*-*-*"):
        lines = [json.loads(line) for line in mark.read_text().splitlines()]
        rows = [(partition, offset) for _, partition, offset in lines]
        found[tuple(map(int, mark.name.split("-")))] = {directory for directory, _, _ in lines}, rows
    return found


@pytest.mark.soak
def test_tasks_of_a_killed_worker_are_run_again_with_the_same_ranges(
    on_standalone, two_workers, kafka, group, tmp_path
):
    topic = topic_with(kafka, numbered(400, 4), partitions=4)
    marks = tmp_path / "marks"
    marks.mkdir()
    query = on_standalone.start(
        options=options(kafka, topic, group, minPartitions=4),
        directory=str(tmp_path),
        hold={"marks": str(marks), "offset_to_hold": 99},
    )
    # Two tasks, one on each worker, have read all of their rows and are not done.
    wait_until(lambda: [len(rows) for _, rows in noted(marks).values()] == [100, 100], within=120)
    held = noted(marks)
    produce(kafka, topic, numbered(40, 4, first=400))  # not theirs

    dead, (directories, _) = next(iter(held.items()))
    victim = next(w for w in two_workers.alive() if any(d.startswith(f"{w.directory}/") for d in directories))
    killed = [victim.process.pid, *victim.executors()]
    assert len(killed) > 1
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    victim.process.wait()
    stage, task, attempt = dead
    again = (stage, task, attempt + 1)
    wait_until(lambda: len(noted(marks).get(again, ((), ()))[1]) == 100, within=120)
    assert committed(kafka, group) == {}
    (marks / "go").touch()

    wait_until(lambda: committed(kafka, group) == {(topic, p): 110 for p in range(4)}, within=120)
    on_standalone.stop(query=query)
    found = noted(marks)
    assert found[again][1] == held[dead][1]
    assert not found[again][0] & directories
    assert sorted(found) == sorted({*held, again} | {key for key in found if key[2] == 0})
    assert [batch["rows"] for batch in on_standalone.progress(query=query)] == [400, 40]
    rows = sorted(int(value[1:]) for value in on_standalone.rows(directory=f"{tmp_path}/rows"))
    assert rows == list(range(440))


@pytest.mark.soak
def test_records_in_the_window_of_a_killed_worker_are_handled_again(on_standalone, two_workers, kafka, group, tmp_path):
    topic = topic_with(kafka, numbered(400, 4), partitions=4)
    kafka.create_topic(f"{topic}-dlt", partitions=4)
    marks = tmp_path / "marks"
    marks.mkdir()
    query = on_standalone.handle_records(
        options=options(kafka, topic, group, minPartitions=4, includeHeaders="true"),
        directory=str(tmp_path),
        marks=str(marks),
        offset_to_hold=50,
        dead_letter_topic=f"{topic}-dlt",
    )

    def handled():
        """By the directories that workers run in, the records they were given."""
        found = {}
        for mark in marks.glob("worker-*"):
            for line in mark.read_text().splitlines():
                directory, _, number = json.loads(line)
                found.setdefault(directory, []).append(number)
        return found

    # A task on each worker: cells behind the one that waits are done, and the window is full.
    wait_until(lambda: len(handled()) == 2 and all(len(rows) >= 60 for rows in handled().values()), within=120)
    victim = next(w for w in two_workers.alive() if any(d.startswith(f"{w.directory}/") for d in handled()))
    for pid in [victim.process.pid, *victim.executors()]:
        os.kill(pid, signal.SIGKILL)
    victim.process.wait()
    (marks / "go").touch()
    wait_until(lambda: committed(kafka, group) == {(topic, p): 100 for p in range(4)}, within=120)
    on_standalone.stop(query=query)
    [result] = on_standalone.handled(query=query)
    assert result == {"records": 400, "done": 392, "retried": 0, "dead": 8}
    given = handled()
    lost = {number for d, rows in given.items() if d.startswith(f"{victim.directory}/") for number in rows}
    assert len(lost) >= 60  # and what its Python went on with until it noticed that its executor is gone
    times = Counter(number for rows in given.values() for number in rows)
    assert set(times) == set(range(400))
    again = {number for number, seen in times.items() if seen > 1}
    assert again
    assert again <= lost
    letters = Counter(on_standalone.read(options=options(kafka, f"{topic}-dlt")))
    assert set(letters) == {f"v{n}" for n in range(400) if n % 50 == 7}
    assert {letter for letter, seen in letters.items() if seen > 1} <= {f"v{number}" for number in lost}
