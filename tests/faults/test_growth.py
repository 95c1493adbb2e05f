"""Growth is seen in the second half of a run, in the life of each process, and not in what comes and goes."""

import json
import math
import os
import random
import signal
import subprocess
import sys
import uuid

import pytest

from faults import report
from faults.endurance import Kept, held, result, told
from faults.evidence import Acknowledged
from faults.load import Load
from faults.report import growth, pictures
from faults.scene import Scene
from spark_kafka_group.testing import KafkaCluster

HOURS = 8.0
EVERY_H = 10 / 3600
COMMITTED = """\
{"name": "record_data", "topic": "t", "partition": 0, "offset": 3, "value": "x"}
{"name": "offsets_committed", "success": true, "offsets": [{"topic": "t", "partition": 0, "offset": 4}]}
"""


def samples(memory, life_h=HOURS, hours=HOURS, threads=lambda h, age: 40):
    """A sample each ten seconds of one process after the other, by the hour and the process's age."""
    found = []
    for number in range(int(hours / EVERY_H)):
        h = number * EVERY_H
        pid, age = 100 + int(h / life_h), h % life_h
        of = {"reader process": [pid, memory(h, age), threads(h, age), 60]}
        found.append({"hours": h, "piece": 1 + int(h / life_h), "lag": int(100 + 50 * math.sin(h)), "of": of})
    return found


def memory_of(made):
    return growth.of_one(made, "reader process", "memory")


def test_a_process_that_grows_steadily_is_seen():
    found = memory_of(samples(lambda h, age: 200 + 10 * h))
    assert found.per_hour == pytest.approx(10, abs=0.1)
    assert (found.verdict, found.processes) == ("grows", 1)
    assert found.longest_h == pytest.approx(HOURS / 2, abs=0.1)


def test_one_that_is_level_or_grows_in_the_first_half_alone_or_shrinks_is_not():
    for memory in (lambda h, age: 200, lambda h, age: 200 + 100 * min(h, 4), lambda h, age: 400 - 10 * h):
        assert memory_of(samples(memory)).verdict == "no growth"


def test_what_comes_and_goes_is_no_growth():
    rng = random.Random(3)
    found = memory_of(samples(lambda h, age: 300 + rng.uniform(-80, 80) + 2 * h))
    assert found.noise == pytest.approx(80 / math.sqrt(3), rel=0.1)
    assert found.verdict == "no growth"


def test_processes_that_are_started_again_have_a_level_each_and_one_slope():
    found = memory_of(samples(lambda h, age: 100 + 100 * (h > 5) + 60 * age, life_h=1.0))
    assert found.per_hour == pytest.approx(60, rel=0.1)
    assert (found.verdict, found.processes) == ("grows", 4)
    assert memory_of(samples(lambda h, age: 100 * (1 + int(h)), life_h=1.0)).verdict == "no growth"


def test_what_a_process_takes_while_it_warms_up_does_not_count():
    assert memory_of(samples(lambda h, age: 500 - 400 * (age < 0.05), life_h=1.0)).verdict == "no growth"


def test_a_process_that_does_not_live_long_enough_has_no_verdict():
    assert memory_of(samples(lambda h, age: 100 + 600 * age, life_h=0.25)).verdict == "not known"
    assert memory_of(samples(lambda h, age: 100, hours=0.2)).verdict == "not known"
    assert memory_of([]).verdict == "not known"


def test_threads_are_judged_by_themselves():
    rising = samples(lambda h, age: 200, threads=lambda h, age: 40 + int(h))
    assert [one.verdict for one in growth.judged(rising)] == ["no growth", "grows", "no growth"]


def test_a_run_that_was_killed_says_what_it_has(tmp_path):
    kept = Kept(tmp_path)
    kept.state = {"seed": 7, "topic": "t", "pieces": [], "storms": 3, "kinds": {"leader-kill": 4}, "findings": []}
    kept.save()
    lines = "".join(json.dumps(sample) + "\n" for sample in samples(lambda h, age: 200 + 10 * h))
    (tmp_path / "samples.jsonl").write_text(lines + '{"hours": 9.0, "pie')
    again = Kept(tmp_path)
    text = "\n".join(told(again))
    assert "8.00 hours, 3 storms, 4 faults" in text
    assert "no piece has been judged" in text
    assert "| reader process | memory, MB | 260 | +10.0 | 0.0 | 1 | grows |" in text
    assert result(again)["seed"] == 7


def scene_in(folder):
    """Of a cluster that is not started."""
    (folder / "queries").mkdir(exist_ok=True)
    kafka = KafkaCluster(directory=folder / "kafka")
    return Scene(kafka, folder / "queries", "groupkafka", 7, "t", 4, 10.0)


def test_a_piece_goes_on_with_the_records_of_those_before(tmp_path):
    scene = scene_in(tmp_path)
    scene.load = Load("127.0.0.1:1", {}, 1)
    kept = Kept(tmp_path)
    for number in range(2):
        scene.load.also([Acknowledged(f"p:t:0:{number}", "t", 0, number)])
        scene.aborted.add(f"a{number}")
        scene.gone.add(f"g{number}")
        kept.note(scene, {"hours": number, "piece": 1, "lag": None, "of": {}})
    (tmp_path / "queries" / "neighbour-1-java.jsonl").write_text(COMMITTED)
    with (tmp_path / "acknowledged.jsonl").open("a") as file:
        file.write('["p:t:0:2", "t"')  # it was killed here
    again, load = scene_in(tmp_path), Load("127.0.0.1:1", {}, 1)
    goes_on = Kept(tmp_path)
    goes_on.restore(again, load)
    assert load.acknowledged == scene.load.acknowledged
    assert load.pending == 0
    assert (again.aborted, again.gone) == ({"a0", "a1"}, {"g0", "g1"})
    assert [reader.delivered() for reader in again.neighbours] == [[(("t", 0, 3), "x")]]
    again.load = load
    load.also([Acknowledged("p:t:0:3", "t", 0, 3)])
    goes_on.note(again, {"hours": 2, "piece": 2, "lag": None, "of": {}})
    assert [sample["hours"] for sample in growth.read(tmp_path / "samples.jsonl")] == [0, 1, 2]
    written = [json.loads(line)[3] for line in (tmp_path / "acknowledged.jsonl").read_text().splitlines()]
    assert written == [0, 1, 3]


def test_programs_that_a_killed_piece_left_are_ended_and_no_others(tmp_path):
    kept = Kept(tmp_path)
    kept.state = {"topic": f"endurance-{uuid.uuid4().hex}"}
    left, other = (
        subprocess.Popen([sys.executable, "-c", "input()", word], stdin=subprocess.PIPE)
        for word in (kept.state["topic"], "another")
    )
    with left, other:
        kept.end_programs()
        assert left.wait(10) == -signal.SIGKILL
        assert other.poll() is None
        other.kill()


def test_the_report_has_a_section_about_it(tmp_path):
    found = growth.judged(samples(lambda h, age: 200))
    run = {
        "hours": 8.0, "seed": 7, "pieces": [{}, {}], "storms": 90, "kinds": {"leader-kill": 4, "driver-pause": 9},
        "at_once": 5, "counted": {"records": 4_000_000, "lost": 0}, "findings": [],
        "growth": [vars(one) for one in found],
    }  # fmt: skip
    (tmp_path / "endurance.json").write_text(json.dumps(run))
    text = report.reliability([], tmp_path)
    assert "## Endurance" in text
    assert "90 storms of 13 faults, up to 5 at the same time: 9 driver-pause, 4 leader-kill." in text
    assert "records 4,000,000, lost 0. Violations: 0." in text
    assert "| reader process | threads | 40 | +0.0 | 0.0 | 1 | no growth |" in text


def test_a_picture_is_drawn_the_same_each_time_with_a_gap_between_processes(tmp_path):
    made = samples(lambda h, age: 200, life_h=4.0)[::30]
    made[3]["lag"] = None
    made[5]["of"] = {}
    for name in ("a.png", "b.png"):
        pictures.endurance(made, tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    hours, values = pictures.held(made, "reader process", 1)
    assert sum(math.isnan(value) for value in values) == 2  # without a sample, and where the next process begins
    assert len(hours) == len(made) + 1


def test_what_a_process_holds_is_read_of_living_ones_alone():
    pid, memory, threads, descriptors = held([os.getpid()])
    assert pid == os.getpid()
    assert 5 < memory < 5000
    assert threads >= 1
    assert descriptors >= 3
    assert held([]) is None
    assert held([2**22 + 1]) is None
