"""How runs are made: storms from a seed, clocks that are an hour off, producers, and several cells at a time."""

import itertools
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from support import name

from faults.cells.acts import ACTS
from faults.cells.clocks import HOUR_S, Clock, library
from faults.cells.everything import LANES, OF_A_GROUP, lanes_of
from faults.cells.registry import CELLS
from faults.evidence import GROUPKAFKA, KAFKA
from faults.load import Load
from faults.programs.points import POINTS
from faults.run import in_lanes
from faults.storm import Kind, Lane, drawn, most_at_once, without
from spark_kafka_group.testing import wait_until

# Storms

TWO = (Lane("a", 5, [Kind("x", 9, 1, 2), Kind("y", 1)]), Lane("b", 5, [Kind("z", 1, 3, 3)]))


def test_the_same_seed_gives_the_same_faults_and_another_one_others():
    assert drawn("7 0", LANES, 60) == drawn("7 0", LANES, 60)
    assert drawn("7 0", LANES, 60) != drawn("7 1", LANES, 60) != drawn("8 1", LANES, 60)


def test_faults_of_a_lane_follow_each_other_within_the_time():
    for steps in drawn("1", TWO, 600).values():
        assert len(steps) > 20
        for before, after in itertools.pairwise(steps):
            assert after.at_s >= before.at_s + before.lasts_s
        assert steps[0].at_s >= 0
        assert steps[-1].at_s < 600


def test_kinds_are_drawn_by_their_weights_and_last_as_long_as_they_say():
    steps = drawn("1", TWO, 20_000)["a"]
    kinds = [step.kind for step in steps]
    assert 0.85 < kinds.count("x") / len(kinds) < 0.95
    assert all((1 <= step.lasts_s <= 2) if step.kind == "x" else step.lasts_s == 0 for step in steps)


def test_a_calm_storm_has_fewer_faults():
    hours = 3600 * 20
    wild, calm = (sum(map(len, drawn("1", TWO, hours, calm=factor).values())) for factor in (1.0, 4.0))
    assert 2.2 < wild / calm < 4


def test_a_lane_may_be_left_with_fewer_kinds_or_left_out():
    (left,) = without(TWO, ["x", "z"])
    assert (left.name, [kind.name for kind in left.kinds]) == ("a", ["y"])


@pytest.mark.parametrize(
    ("spans", "most"), [([], 0), ([(0, 5), (5, 9)], 1), ([(0, 5), (1, 3), (2, 9), (6, 8)], 3), ([(0, 1)] * 4, 4)]
)
def test_how_many_there_were_at_once(spans, most):
    assert most_at_once(spans) == most


def test_each_kind_of_fault_does_something_and_each_act_is_drawn():
    kinds = [kind.name for lane in LANES for kind in lane.kinds]
    assert set(kinds) == set(ACTS)
    assert set(OF_A_GROUP) < set(ACTS)
    assert "sink" in POINTS  # the one point that the file sink does not have


def test_sparks_own_source_has_the_faults_that_need_no_group():
    assert lanes_of(GROUPKAFKA) == list(LANES)
    kinds = {kind.name for lane in lanes_of(KAFKA) for kind in lane.kinds}
    assert {"driver-kill", "leader-kill", "proxies-cut", "partition-added", "transaction"} <= kinds
    assert not kinds & set(OF_A_GROUP)
    assert CELLS["everything"].sources == (GROUPKAFKA, KAFKA)


# Clocks that are an hour off

SHOWN = "import os, time; print(time.time(), time.monotonic(), os.stat('clock').st_mtime)"


def shown(folder):
    """What a process with the library sees: the time of day, a clock of durations, and the time of the clock's file."""
    environment = {"LD_PRELOAD": str(library(folder)), "CLOCK_FILE": str(folder / "clock")}
    done = subprocess.run([sys.executable, "-c", SHOWN], cwd=folder, env=environment, capture_output=True, check=True)
    return SimpleNamespace(**dict(zip(("time", "monotonic", "written"), map(float, done.stdout.split()), strict=True)))


@pytest.mark.parametrize("ahead_s", [0, HOUR_S, -HOUR_S])
def test_a_processs_time_of_day_is_off_and_its_clock_of_durations_is_not(tmp_path, ahead_s):
    clock = Clock(tmp_path / "clock")
    clock.set(ahead_s)
    before, began = time.time(), time.monotonic()
    seen = shown(tmp_path)
    assert before + ahead_s <= seen.time <= time.time() + ahead_s
    assert began <= seen.monotonic <= time.monotonic()
    assert abs(seen.written - before) < HOUR_S / 2


def test_a_time_that_a_clock_has_shown_is_that_of_the_judge_again(tmp_path):
    clock = Clock(tmp_path / "clock")
    for ahead_s in (HOUR_S, 0, -HOUR_S, -2 * HOUR_S):
        now = time.time()
        clock.set(ahead_s)
        assert clock.real_ms((now + 1 + ahead_s) * 1000) == pytest.approx((now + 1) * 1000)


# Producers


def test_partitions_that_are_added_get_records_soon(kafka):
    topic = kafka.create_topic(name("load"), partitions=1)
    with Load(kafka.bootstrap_servers, {topic: 1}, 100) as load:
        wait_until(lambda: load.acknowledged, within=30)
        kafka.add_partitions(topic, 2)
        load.spread(topic, 2)
        wait_until(lambda: any(each.partition == 1 for each in load.acknowledged), within=30)


# Several cells at a time


def python(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_commands_run_at_the_same_time_and_those_that_fail_are_counted(capfd, tmp_path):
    meet = "import pathlib, sys, time\nhere = pathlib.Path(sys.argv[1])\n"
    meet += "(here / sys.argv[2]).touch()\nwhile len(list(here.iterdir())) < 2: time.sleep(0.01)\nprint(sys.argv[2])\n"
    both = [[*python(meet), str(tmp_path), name] for name in ("one", "two")]
    assert in_lanes([*both, python("raise SystemExit(1)")], 2) == 1
    assert sorted(capfd.readouterr().out.split()) == ["one", "two"]


def test_an_end_ends_what_runs(monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("builtins.print", interrupted)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        in_lanes([python("print(1)"), python("import time; time.sleep(200)")], 2)
    assert time.monotonic() - began < 100
