"""The judge of output topics: which rows follow from a checkpoint, and that each finding can come."""

from collections import Counter
from dataclasses import replace

import pytest

from faults.cells.registry import CELLS
from faults.evidence import ABORT, COMMIT, Batch, Observed, Output
from faults.judge import judged
from faults.once.shapes import AGGREGATE, JOIN, MAP, as_read, expected

LOG = {("t", p, at): f"p0:t:{p}:{at}" for p in (0, 1) for at in range(8)}
LOG |= {("u", 0, at): f"p0:u:0:{at}" for at in range(3)}
ZERO = {("t", 0): 0, ("t", 1): 0}
MIDDLE = {("t", 0): 6, ("t", 1): 3}
ENDS = {("t", 0): 8, ("t", 1): 8}
BATCHES = [Batch(0, ZERO, MIDDLE, 1.0), Batch(1, MIDDLE, ENDS, 2.0)]
OF_T = {place: name for place, name in LOG.items() if place[0] == "t"}


def query(shape=MAP, **changed):
    """A query as it should be."""
    rows = expected(shape, BATCHES, OF_T)
    good = Output("q", shape, OF_T, rows, rows, batches=BATCHES, ends=ENDS, committed=ENDS, ended=ENDS)
    return replace(good, **changed)


def findings(output):
    """How many of each invariant."""
    return Counter(found.invariant for found in judged(Observed("groupkafka", "topic-once", outputs=[output])))


def row(p, at):
    return f"t {p} {at}", f"p0:t:{p}:{at}"


@pytest.mark.parametrize("shape", [MAP, AGGREGATE])
def test_a_query_that_wrote_each_row_once_has_no_findings(shape):
    assert findings(query(shape)) == {}


def test_a_mapped_record_has_a_row_with_its_place():
    assert expected(MAP, BATCHES, OF_T) == Counter(row(p, at) for p in (0, 1) for at in range(8))


def test_an_aggregation_has_the_count_so_far_of_each_group_in_each_batch():
    rows = expected(AGGREGATE, BATCHES, OF_T)
    assert rows["p0:0:0", "2"] == 2  # sequence numbers 0 and 5 in the first batch, and none of the group later
    assert rows["p0:1:0", "1"] == 1
    assert rows["p0:1:0", "2"] == 1
    assert rows.total() == 5 + 3 + 5 + 5


def test_a_batch_that_was_not_committed_has_read_what_is_before_the_next_one():
    started_again = Batch(2, {("t", 0): 4, ("t", 1): 3}, ENDS, 3.0)
    assert [batch.ends for batch in as_read([BATCHES[0], started_again])] == [{("t", 0): 4, ("t", 1): 3}, ENDS]
    rows = expected(AGGREGATE, [BATCHES[0], started_again], OF_T)
    assert rows["p0:0:0", "1"] == 1  # sequence number 5 is not in the first batch
    assert rows["p0:0:0", "2"] == 1


def test_counts_of_all_records_are_expected_though_batches_have_left_some_out():
    rows = expected(AGGREGATE, BATCHES[1:], OF_T)
    assert rows["p0:0:0", "2"] == 1


def test_a_join_has_a_row_for_each_two_records_that_share_a_name():
    assert expected(JOIN, [], LOG) == Counter({(f"p0:0:{at}", f"p0:0:{at}"): 1 for at in range(3)})
    assert expected(JOIN, BATCHES, OF_T) == Counter()


LESS = expected(MAP, BATCHES, OF_T) - Counter([row(0, 1)])
MORE = expected(MAP, BATCHES, OF_T) + Counter([row(0, 1)])
OTHER = expected(MAP, BATCHES, OF_T) + Counter([("t 9 9", "?")])


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"rows": LESS}, {"nothing missing": 1}),
        ({"rows": MORE, "uncommitted": MORE}, {"nothing twice": 1}),
        ({"rows": MORE, "uncommitted": MORE, "once": False}, {}),
        ({"rows": LESS, "once": False}, {"nothing missing": 1}),
        ({"rows": OTHER, "uncommitted": OTHER, "once": False}, {"nothing else": 1}),
        ({"uncommitted": LESS}, {"never less": 1}),
        ({"committed": MIDDLE}, {"agreed at rest": 2}),
        ({"ended": MIDDLE}, {"agreed at rest": 2}),
    ],
)
def test_each_finding_can_come(changed, found):
    assert findings(query(**changed)) == found


@pytest.mark.parametrize(
    ("rows", "mended", "found"),
    [
        (LESS, {0: COMMIT}, {}),
        (LESS, {0: ABORT}, {"nothing missing": 1, "lost in part": 1}),
        (LESS, {1: COMMIT}, {"nothing missing": 1, "lost in part": 1}),
        (MORE, {0: ABORT}, {}),
        (MORE, {0: COMMIT}, {"nothing twice": 1, "lost in part": 1}),
        (expected(MAP, BATCHES, OF_T), {0: ABORT}, {"lost in part": 1}),
    ],
)
def test_of_a_batch_that_was_mended_rows_are_missing_or_twice_as_the_choice_says(rows, mended, found):
    assert findings(query(rows=rows, uncommitted=rows, mended=mended)) == found


def shared(**changed):
    rows = expected(MAP, BATCHES, OF_T)
    rows -= Counter([row(0, 1)])
    good = Output("g", MAP, OF_T, rows, delivered=Counter([("t", 0, 1)]), ends=ENDS, committed=ENDS)
    return replace(good, **changed)


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, {}),
        ({"delivered": Counter()}, {"nothing missing": 1}),
        ({"delivered": Counter(), "in_doubt": frozenset({("t", 0, 1)})}, {}),
        ({"rows": expected(MAP, BATCHES, OF_T)}, {"nothing twice": 1}),
        ({"rows": MORE, "delivered": Counter(), "once": False}, {}),
        ({"rows": OTHER, "delivered": Counter()}, {"nothing else": 1}),
        ({"committed": MIDDLE}, {"agreed at rest": 2}),
    ],
)
def test_a_record_of_a_shared_group_is_in_an_output_or_a_neighbours(changed, found):
    assert findings(shared(**changed)) == found


@pytest.mark.soak
def test_a_query_at_each_step_of_a_write_is_hit_and_nothing_is_missing_or_twice(tmp_path, kafka):
    cell = CELLS["sink-steps-worker-kill-once"]
    line = cell.own(cell, 7, 6, tmp_path, kafka)
    assert line["findings"] == [], f"the run is in {tmp_path}"
    assert line["faults"] == 6
    assert line["rows"] == line["wanted_rows"] > 0
