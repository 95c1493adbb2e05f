"""A cheap cell of each family, on real brokers and in real Spark: `make test-faults`, `make faults` in short."""

import json
from dataclasses import replace

import pytest

from matrix import cells as families
from matrix.cells.registry import CELLS, GROUPKAFKA, KAFKA, Cell
from matrix.run import lines_of, play, run_cell

CHEAP = {
    "driver": "driver-kill-before-commit",
    "restart": "restart-elsewhere-cluster",
    "worker": "worker-kill",
    "cluster": "executor-kill",
    "broker": "broker-only-kill",
    "network": "proxy-cuts",
    "neighbour": "kafka-python-kill",
    "operator": "operator-more-partitions",
    "transaction": "transaction-driver-kill",
    "query": "second-query-killed",
    "sink": "sink-driver-kill-once",
    "disk": "disk-full",
    "log": "log-longer",
    "right": "password-changed",
    "processor": "processor-worker-kill",
    "credential": "token-endpoint-away",
    "clock": "clock-jumps-ahead",
}
SEED = 7
IN_THE_RUN_OF = {
    "disk-full": ("driver-kill-before-commit", "worker-kill", "broker-only-kill"),
    "clock-jumps-ahead": ("second-query-killed", "kafka-python-kill", "operator-more-partitions"),
    "restart-elsewhere-cluster": ("executor-kill",),
}
"""Cells that need nothing that the first one lacks: their faults follow its own, as brokers and Spark start slowly."""
JOINING = {name for others in IN_THE_RUN_OF.values() for name in others}
PLAYED = sorted((name for name in CHEAP.values() if name not in JOINING), key=lambda name: name not in IN_THE_RUN_OF)
NOT_ALONE = {"second-query-killed", "processor-worker-kill", "transaction-driver-kill"}
"""Others read records too, a handler has one again, or a record was aborted: rows are not the records, one each."""


def test_each_family_has_a_cheap_cell():
    assert set(CHEAP) | {"everything"} == {cell.family for cell in CELLS.values()}


def test_cells_that_share_a_run_need_the_same():
    own = dict.fromkeys(("family", "name", "what", "happen", "sources", "session_s", "prepare"))
    for name, others in IN_THE_RUN_OF.items():
        for other in others:
            assert CELLS[other].prepare in (None, CELLS[name].prepare)
            assert replace(CELLS[other], **own) == replace(CELLS[name], **own)


def test_the_report_has_each_file_of_cells():
    assert {cell.happen.__module__ for cell in CELLS.values()} == {family.__name__ for family in families.FAMILIES}


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


@pytest.mark.faults
@pytest.mark.parametrize("name", PLAYED)
def test_a_fault_loses_nothing_and_repeats_nothing(request, tmp_path, name):
    cells = [CELLS[each] for each in (name, *IN_THE_RUN_OF.get(name, ()))]
    cell = replace(cells[0], happen=lambda scene: [each.happen(scene) for each in cells])
    shared = None
    if cell.brokers is None and not cell.properties and cell.family != "log":  # its broker loses records of all topics
        shared = request.getfixturevalue("kafka" if cell.nodes == 1 else "kafka3")
    line = play(cell, GROUPKAFKA, SEED, 1, tmp_path, shared)
    assert line["findings"] == [], f"the run is in {tmp_path}"
    assert line["faults"] == len(cells)
    assert line["lost"] == 0
    assert line["rows"] > 1_000
    if NOT_ALONE.isdisjoint(each.name for each in cells):
        assert line["twice"] == 0
        assert line["rows"] == line["records"]


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_two_storms_of_everything_lose_nothing(tmp_path):
    line = play(CELLS["everything"], GROUPKAFKA, SEED, 2, tmp_path)
    assert line["findings"] == [], f"the run is in {tmp_path}"
    assert line["lost"] == 0
    assert sum(line["kinds"].values()) > 10
    assert line["at_once"] > 1


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_storm_over_queries_that_write_publishes_each_row_once_and_has_copies_of_slow_tasks(tmp_path):
    line = play(CELLS["sink-storm-once"], GROUPKAFKA, SEED, 1, tmp_path)
    assert line["findings"] == [], f"the run is in {tmp_path}"
    assert line["twice"] == 0
    assert line["tasks"]["copies"] > 0
