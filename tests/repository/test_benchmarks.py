"""The benchmarks' report has every measurement."""

import importlib
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
HELPERS = {"actors", "common", "pictures", "render", "decoding_json", "decoding_protobuf", "decoding_values"}
MACHINE = {"date": "2026-01-02", "processor": "quick", "cores": 2, "python": "3.11.7", "commit": "aaaaaaa"}


@pytest.fixture
def render(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("render")


@pytest.fixture
def tree(tmp_path):
    """A folder for results and one for findings."""
    for name in ("results", "findings"):
        (tmp_path / name).mkdir()
    return tmp_path


def measured(tree, name, rows, curves=(), **machine):
    content = {"question": f"How is {name}?", "machine": MACHINE | machine, "rows": rows, "curves": list(curves)}
    (tree / "results" / f"{name}.json").write_text(json.dumps(content))


def rendered(render, tree):
    render.render(tree / "results", tree / "findings", tree / "RESULTS.md")
    return (tree / "RESULTS.md").read_text()


def row(case, cells, goal=None):
    """As common.Report writes it."""
    message = {} if goal is None else {"goal": str(goal), "met": goal.met(cells)}
    return {"case": case, "cells": cells, "measured": {}} | message


def test_the_report_has_every_row_and_goal_and_finding_in_the_order_of_programs(render, tree):
    goal_of = importlib.import_module("common").Goal
    measured(tree, "idle", [row("no records", {"CPU %": 1.5, "/ Java": 0.5}, goal_of("/ Java", at_most=0.4))])
    measured(
        tree,
        "streaming",
        [
            row("a|b", {"kafka s": 12.0, "groupkafka s": 6.0}, goal_of("kafka s", at_least=4 / 3)),
            row("a|b, times", {"/ Java": 2}),
            row("a|b, growth", {"growth": 1.5}),
            row("c", {"kafka s": 1234.5, "groupkafka s": "none"}),
        ],
        commit="bbbbbbb",
    )
    (tree / "findings" / "streaming.md").write_text("The disk bounds it.\n")
    lines = rendered(render, tree).splitlines()

    def after(*wanted):
        """Line numbers, which grow."""
        numbers = [lines.index(text) for text in wanted]
        assert numbers == sorted(numbers)

    after(
        "| commit | bbbbbbb (streaming); aaaaaaa (idle) |",
        "| processor | quick |",
        "## Goals: 1 of 2 are met",
        "| How is streaming? | a\\|b | kafka s 12 | ≥ 1.33 | met |",
        "| How is idle? | no records | / Java 0.5 | ≤ 0.4 | **missed by 25.0%** |",
        "## How is streaming?",
        "|  | kafka s | groupkafka s | goal |  |",
        "| a\\|b | 12 | 6 | kafka s ≥ 1.33 | met |",
        "| c | 1,234 | none |  |  |",  # rows with the same cells share a table
        "|  | value |",  # as do those of one cell
        "| a\\|b, times | / Java 2 |",
        "| a\\|b, growth | growth 1.5 |",
        "The disk bounds it.",
        "## How is idle?",
        "| no records | 1.5 | 0.5 | / Java ≤ 0.4 | **missed by 25.0%** |",
    )
    assert not list(tree.glob("results/*.png"))


def test_results_that_have_no_place_in_the_report_are_an_error(render, tree):
    with pytest.raises(SystemExit, match="no results"):
        rendered(render, tree)
    measured(tree, "somersault", [])
    with pytest.raises(SystemExit, match="somersault"):
        rendered(render, tree)


def test_pictures_show_ratios_and_curves_and_are_the_same_each_time(render, tree):
    goal = importlib.import_module("common").Goal("ratio", at_least=3)
    rows = [
        row("quick", {"ratio": 30.0}, goal),
        row("slow", {"ratio": 0.5}, goal),
        row("without a goal", {"ratio": 1.0}),
    ]
    series = {"kafka": [(0, 5.0), (1, 900.0)], "groupkafka": [(0, 1.0), (1, 2.0)]}
    flat = {"100 B": [(10, 1.0), (1000, 1.1)]}
    measured(
        tree,
        "growth",
        rows,
        [
            {"title": "Headers, 32 B", "x": "headers", "y": "ms", "series": series},
            {"title": "Memory", "x": "records", "y": "MiB", "series": flat},
        ],
    )
    (tree / "results" / "growth-of-last-time.png").touch()
    report = rendered(render, tree)
    links = re.findall(r"!\[(.+)\]\((results/.+)\)", report)
    assert [title for title, _ in links] == ["Times as fast", "Headers, 32 B", "Memory"]
    drawn = {file: (tree / file).read_bytes() for _, file in links}
    assert {tree / file for file in drawn} == set(tree.glob("results/*.png"))
    assert all(png.startswith(b"\x89PNG") for png in drawn.values())
    assert rendered(render, tree) == report
    assert {file: (tree / file).read_bytes() for file in drawn} == drawn


def test_every_program_is_run_by_make_bench_and_has_its_place_in_the_report(render):
    [named] = re.findall(r"^BENCHMARKS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert tuple(named.split()) == render.PROGRAMS
    assert {path.stem for path in BENCHMARKS.glob("*.py")} - HELPERS <= set(render.PROGRAMS)
    assert {path.stem for path in (BENCHMARKS / "findings").glob("*.md")} <= set(render.PROGRAMS)
