"""The faults of a storm come from its seed, one at a time in each lane, and several at the same time."""

import itertools

import pytest

from faults.cells.drivers import POINTS
from faults.cells.everything import ACTS, LANES, OF_A_GROUP, lanes_of
from faults.cells.registry import CELLS, GROUPKAFKA, KAFKA
from faults.storm import Kind, Lane, drawn, most_at_once, without

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
