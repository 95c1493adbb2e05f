"""Cells on real brokers and in real Spark: a cheap one of each family for `make test-faults`, more for `make soak`."""

import json
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import pytest

from faults.cells import FILES
from faults.cells.registry import CELLS, Cell
from faults.evidence import GROUPKAFKA, KAFKA
from faults.lines import lines_of
from faults.run import play, run_cell

SEED = 7
SHORT = (
    ("restart-elsewhere", "sink-leader-kill-once"),
    ("broker-only-kill", "clock-jumps-ahead", "kafka-python-kill"),
    ("proxy-cuts", "processor-leader-kill"),
    ("driver-kill-before-commit", "two-sources-driver-kill", "worker-kill", "operator-delete-records-read",
     "transaction-hangs"),
)  # fmt: skip
"""A cell of each family, by the runs that they share, as brokers and Spark start slowly. A worker plays two of them."""
LONGER = (
    ("restart-elsewhere-cluster", "executor-kill"),
    ("restart-elsewhere", "processor-leader-kill"),
    ("disk-full", "operator-more-partitions", "second-query-killed"),
    ("token-endpoint-away", "log-longer"),
    ("password-changed",),
)
"""More cells of families that have many: for `make soak`."""
RUNS = [
    *(pytest.param(names, marks=pytest.mark.faults, id=" ".join(names)) for names in SHORT),
    *(pytest.param(names, marks=[pytest.mark.soak, pytest.mark.timeout(900)], id=" ".join(names)) for names in LONGER),
]
NOT_ALONE = {"kafka-python-kill", "second-query-killed", "processor-leader-kill"}
"""Others of the group read, too, or a driver that was replaced hands its last records to the handler: rows are not the
records, one each."""
PLAIN = Cell("none", "plain", "nothing", lambda scene: None)
OF_A_CELL = {"family", "name", "what", "happen", "prepare", "count", "at_once", "sources"}


def together(names: Sequence[str]) -> Cell:
    """A cell whose fault is that of each of these, in turn, and which is prepared as each of them.

    What else one of them needs, the others leave at its default.
    """
    cells = [CELLS[name] for name in names]
    needs: dict[str, Any] = {}
    for field in fields(Cell):
        if field.name not in OF_A_CELL:
            default = getattr(PLAIN, field.name)
            needed = [value for cell in cells if (value := getattr(cell, field.name)) != default]
            assert all(value == needed[0] for value in needed), f"{names} differ in {field.name}"
            needs[field.name] = needed[0] if needed else default
    prepared = dict.fromkeys(cell.prepare for cell in cells if cell.prepare is not None)
    return replace(
        cells[0],
        happen=lambda scene: [cell.happen(scene) for cell in cells],
        prepare=lambda scene: [prepare(scene) for prepare in prepared],
        **needs,
    )


def test_a_cell_of_each_family_is_played():
    played = [CELLS[name].family for names in SHORT for name in names]
    assert sorted([*played, "everything"]) == sorted({cell.family for cell in CELLS.values()})


def test_cells_of_a_run_differ_in_nothing_that_two_of_them_need():
    for names in (*SHORT, *LONGER):
        together(names)
    with pytest.raises(AssertionError, match="differ in sink"):
        together(["sink-leader-kill-once", "processor-leader-kill"])


def test_the_report_has_each_file_of_cells():
    assert {cell.happen.__module__ for cell in CELLS.values()} == {file.__name__ for file in FILES}


def test_brokers_that_do_not_start_are_a_finding_of_the_run(tmp_path):
    def made():
        raise RuntimeError("node 1 does not serve")

    line = play(Cell("broker", "no-broker", "none", lambda scene: None, brokers=made), GROUPKAFKA, SEED, 1, tmp_path)
    assert line["violations"] == {"run": 1}
    assert "node 1 does not serve" in line["findings"][0]["problem"]
    assert "node 1 does not serve" in (tmp_path / "error").read_text()


def test_a_run_with_findings_is_made_again_once_the_package_changes_and_stays_in_the_results(tmp_path):
    def own(cell, seed, count, directory, kafka):
        return {"faults": count, "violations": {}, "findings": [], "gaps": []}

    results = tmp_path / "results"
    results.mkdir()
    earlier = {"faults": 5, "violations": {"run": 1}, "code": "an earlier package"}
    (results / "played.groupkafka.jsonl").write_text(json.dumps(earlier) + "\n")
    played = Cell("broker", "played", "none", lambda scene: None, own=own)
    run_cell(played, GROUPKAFKA, 8, None, False, results, tmp_path / "runs")
    first, second = lines_of("played", GROUPKAFKA, results)
    assert first == earlier
    assert second["faults"] == 8
    # What Spark's source violates is a result.
    (results / "played.kafka.jsonl").write_text(json.dumps(earlier) + "\n")
    run_cell(played, KAFKA, 8, None, False, results, tmp_path / "runs")
    assert [line["faults"] for line in lines_of("played", KAFKA, results)] == [5, 3]


@pytest.mark.parametrize("names", RUNS)
def test_faults_lose_nothing_and_repeat_nothing(tmp_path, names):
    cell = together(names)
    line = play(cell, GROUPKAFKA, SEED, 1, tmp_path)
    assert line["findings"] == [], f"the run is in {tmp_path}"
    assert line["faults"] == len(names)
    assert line["lost"] == 0
    assert line["rows"] > 1_000
    if NOT_ALONE.isdisjoint(names):
        assert line["twice"] == 0
        assert line["rows"] == line["records"] - line["aborted"]


@pytest.mark.timeout(900)
@pytest.mark.soak
def test_two_storms_of_everything_lose_nothing(tmp_path):
    line = play(CELLS["everything"], GROUPKAFKA, SEED, 2, tmp_path)
    assert line["findings"] == [], f"the run is in {tmp_path}"
    assert line["lost"] == 0
    assert sum(line["kinds"].values()) > 10
    assert line["at_once"] > 1


@pytest.mark.timeout(900)
@pytest.mark.soak
def test_a_storm_over_queries_that_write_publishes_each_row_once_and_has_copies_of_slow_tasks(tmp_path):
    line = play(CELLS["sink-storm-once"], GROUPKAFKA, SEED, 1, tmp_path)
    assert line["findings"] == [], f"the run is in {tmp_path}"
    assert line["twice"] == 0
    assert line["tasks"]["copies"] > 0
