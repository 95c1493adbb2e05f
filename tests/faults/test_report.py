"""The report of the fault matrix has every run, every violation, and every cell that was not run."""

import json

from faults import report
from faults.cells.registry import CELLS
from faults.report import causes

GAP = {"what": "kill", "lasted": 5.0, "first": 1.0, "progressed": 2.5, "bound": 25.0}


def line(cell, source="groupkafka", **changed):
    base = {
        "cell": cell, "source": source, "seed": 7, "faults": 2, "records": 1500, "rows": 1500, "lost": 0, "twice": 0,
        "batches": 30, "generations": 30, "commits": 90, "restarts": 0, "gaps": [GAP, GAP | {"progressed": 9.0}],
        "violations": {}, "findings": [], "code": "abc", "date": "2026-01-02",
    }  # fmt: skip
    return base | changed


def results(folder, *lines):
    for one in lines:
        with (folder / f"{one['cell']}.{one['source']}.jsonl").open("a") as file:
            file.write(json.dumps(one) + "\n")
    return folder


def test_runs_of_a_cell_are_added_up_and_violations_are_named(tmp_path):
    found = {"invariant": "nothing missing", "problem": "3 records | are not there", "records": 3}
    wrong = line("driver-kill", lost=3, violations={"nothing missing": 1}, findings=[found])
    text = report.reliability(report.tallies(results(tmp_path, line("driver-kill"), wrong)))
    row = "| driver-kill | `groupkafka` | 4 | 3,000 | 3 | 0 | 60 | nothing missing: 1 | 5.8, at most 9.0 |"
    assert row in text.splitlines()
    ours, theirs = text.split("## Violations of ")[1:]
    assert ours.startswith("`groupkafka`")
    assert "- driver-kill, seed 7: nothing missing: 3 records   are not there" in ours.splitlines()
    assert "\nNone.\n" in theirs


def test_a_violation_has_its_cause_below_it(tmp_path):
    found = {"invariant": "nothing missing", "problem": "3 records are not there", "records": 3}
    lost = line("log-longer", "kafka", seed=5, violations={"nothing missing": 1}, findings=[found])
    lines = report.reliability(report.tallies(results(tmp_path, lost))).splitlines()
    assert lines[lines.index("- log-longer, seed 5: nothing missing: 3 records are not there") + 1] == (
        f"  - *Cause:* {causes.BECOMES_OTHER}"
    )


def test_each_violation_so_far_has_a_cause_and_each_cause_a_violation():
    endurance = json.loads((report.RESULTS / "endurance.json").read_text())
    runs = [line for tally in report.tallies(report.RESULTS) for line in tally.lines if line["findings"]]
    wrong = {(line["cell"], line["source"], line["seed"]) for line in runs}
    wrong |= {("endurance", "groupkafka", endurance["seed"])} if endurance["findings"] else set()
    assert {run for run in wrong if causes.cause(*run) is None} == set()
    assert set(causes.CAUSES) <= wrong | {(cell, source, None) for cell, source, _ in wrong}


def test_storms_say_their_minutes_their_seeds_and_which_faults_they_had(tmp_path):
    first = line("everything", seconds=600, kinds={"leader-kill": 2, "driver-kill": 5}, at_once=4)
    failed = line("everything", seconds=60, seed=8, faults=0)
    text = report.reliability(report.tallies(results(tmp_path, first, failed)))
    assert "## Everything at once" in text
    said = "11 minutes, 2 storms of 7 faults, up to 4 at the same time (seeds 7, 8): 5 driver-kill, 2 leader-kill."
    assert f"`groupkafka`: {said}" in text.splitlines()


def test_cells_that_were_not_run_are_listed_with_their_counts(tmp_path):
    rows = report.not_run(report.tallies(results(tmp_path, line("driver-kill", faults=20))))
    named = [tuple(row.strip("| ").split(" | ")[:3]) for row in rows[4:]]
    assert ("driver-kill", "`kafka`", "0 of 20") in named
    assert ("driver-kill", "`groupkafka`") not in {found[:2] for found in named}
    assert {found[0] for found in named} == set(CELLS)


def test_faults_of_runs_with_violations_are_to_be_repeated(tmp_path):
    wrong = {"faults": 6, "violations": {"nothing missing": 1}}
    lines = [
        line("driver-kill", source, **more) for source in ("groupkafka", "kafka") for more in ({"faults": 14}, wrong)
    ]
    tallies = report.tallies(results(tmp_path, *lines))
    rows = report.not_run(tallies)
    assert not any(row.startswith("| driver-kill | `kafka`") for row in rows)  # its losses are Spark's
    assert any(row.startswith("| driver-kill | `groupkafka` | 14 of 20 |") for row in rows)
    assert "| driver-kill | `groupkafka` | 20 | 3,000 |" in report.reliability(tallies)


def test_the_page_gets_a_row_for_each_family_and_source_and_the_same_pictures_each_time(tmp_path):
    folder = tmp_path / "results"
    folder.mkdir()
    results(folder, line("driver-kill"), line("driver-kill", "kafka"), line("proxy-cuts"))
    page, pictures = tmp_path / "page.md", tmp_path / "pictures"
    page.write_text("# Page\n\n<!-- begin faults; `make faults` writes this -->\n<!-- end -->\n\nmore\n")
    report.write(folder, tmp_path / "fault-matrix.md", page, pictures)
    first = page.read_text(), {path.name: path.read_bytes() for path in pictures.iterdir()}
    assert "| driver | `kafka` | 1 | 2 | 1,500 | 0 | 0 | 0 |" in first[0]
    assert set(first[1]) == {"faults-driver.png", "faults-network.png"}
    report.write(folder, tmp_path / "fault-matrix.md", page, pictures)
    assert first == (page.read_text(), {path.name: path.read_bytes() for path in pictures.iterdir()})


def test_runs_of_several_queries_say_where_each_stood(tmp_path):
    runs = [
        line("sink-steps-worker-kill-once", steps={"flushed": 2, "decided": 1}, oldest_transaction_s=12.4, restarts=1)
    ]
    runs.append(line("sink-steps-worker-kill-once", seed=8, steps={"flushed": 1}))
    text = report.reliability(report.tallies(results(tmp_path, *runs)))
    said = "3,000 rows published, 1 times a query that had ended was started again"
    oldest = "the oldest transaction that was seen open was 12 s old (seeds 7, 8)."
    assert f"sink-steps-worker-kill-once: 3 flushed, 1 decided; {said}; {oldest}" in text.splitlines()


def test_rows_that_the_tool_was_told_to_leave_out_or_repeat_are_said(tmp_path):
    run = line("sink-held-half-ended-once", steps={"half-ended": 5}, by_choice={"missing": 1200, "twice": 7})
    text = report.reliability(report.tallies(results(tmp_path, run)))
    assert "; as the tool was told 1,200 rows are missing, and 7 there twice (seeds 7)." in text


def test_tasks_that_were_copied_or_tried_again_in_storms_are_said(tmp_path):
    tasks = {"copies": 3, "copies that were first": 2, "tried again": 9, "commits denied": 0}
    run = line("sink-storm-once", steps={"worker-kill": 4}, tasks=tasks)
    text = report.reliability(report.tallies(results(tmp_path, run)))
    assert "; of tasks 9 tried again, 3 copies, 2 copies that were first, 0 commits denied (seeds 7)." in text
