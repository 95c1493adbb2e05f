"""Writes benchmarks/RESULTS.md and its pictures from the results in benchmarks/results/*.json.

python benchmarks/render.py      # `make bench` ends with it
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pictures
from common import RESULTS, shown

PROGRAMS = (
    "cost", "batch", "columns", "streaming", "writing", "transactions", "partitions", "ceiling", "consumers",
    "generations", "latency", "memory", "start", "idle", "growth", "exploring", "processing", "values",
)  # fmt: skip
"""In the order of the report."""
FINDINGS = Path(__file__).parent / "findings"
HEAD = """\
# Results of the benchmarks

`make bench` measures all of this and writes this file: each program in `benchmarks/` answers one question, against one
broker on the same machine, and the sides it compares take turns after a warm-up. Unless a row says otherwise numbers
are medians; every single measurement is in `benchmarks/results/*.json`. `kafka` is Spark's own source. A ratio says how
many times as long the other side takes: above 1 groupkafka is faster. Goals stand in the programs, met or not.

```
make bench                      # an hour and a half, on a machine that does nothing else
make bench JARS=folder          # with the jars of Spark's own source, where --packages cannot download
make bench ONLY="batch idle"    # some of the programs; the others' results stay as they are
```
"""
FACTS = {
    "date": "date",
    "commit": "commit",
    "processor": "processor",
    "cores": "cores",
    "memory_gib": "memory, GiB",
    "system": "system",
    "java": "Java",
    "python": "Python",
    "pyspark": "pyspark",
    "kafka": "Kafka's broker",
    "kafka_python": "kafka-python",
    "pyarrow": "pyarrow",
    "confluent_kafka": "confluent-kafka",
    "aiokafka": "aiokafka",
}
"""The facts of `common.machine()`, in this order."""


def reports_in(results: Path) -> dict[str, dict[str, Any]]:
    """The results of each program that was run, in the order of the report.

    Raises
    ------
    SystemExit
        When there is nothing, or a program that has no place in the report.
    """
    found = {path.stem: json.loads(path.read_text()) for path in results.glob("*.json")}
    if not found:
        raise SystemExit(f"no results in {results}: run `make bench`, or a program of benchmarks/")
    if unknown := found.keys() - set(PROGRAMS):
        raise SystemExit(f"{results} has results of {', '.join(sorted(unknown))}: add it to PROGRAMS in render.py")
    return {name: found[name] for name in PROGRAMS if name in found}


def render(results: Path, findings: Path, report: Path) -> None:
    """Write the report, and its pictures beside the results."""
    contents = reports_in(results)
    parts = [HEAD, "\n".join(machine_table(contents)), "\n".join(goals_table(contents))]
    for name, content in contents.items():
        parts.append(f"## {content['question']}\n\n`benchmarks/{name}.py`")
        parts += ["\n".join(table) for table in tables(content["rows"])]
        drawn = pictures.draw(name, content, results)
        links = [f"![{title}]({path.relative_to(report.parent)})" for path, title in drawn]
        parts += ["\n".join(links)] if links else []
        prose = findings / f"{name}.md"
        parts += [prose.read_text().strip()] if prose.exists() else []
    report.write_text("\n\n".join(part.strip() for part in parts) + "\n")


def machine_table(contents: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """What was measured on; a fact that differs from program to program with the programs it is of."""
    yield from header(["", "measured on"], "ll")
    for key, what in FACTS.items():
        programs: dict[str, list[str]] = {}
        for name, content in contents.items():
            if content["machine"].get(key) not in (None, ""):
                programs.setdefault(str(content["machine"][key]), []).append(name)
        if len(programs) == 1 and len(programs[value := next(iter(programs))]) == len(contents):
            yield line([what, value])
        elif programs:
            yield line([what, "; ".join(f"{value} ({', '.join(names)})" for value, names in programs.items())])


def goals_table(contents: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Every goal, and its result."""
    with_goals = [(content, row) for content in contents.values() for row in content["rows"] if "goal" in row]
    met = sum(row["met"] for _, row in with_goals)
    yield f"## Goals: {met} of {len(with_goals)} are met"
    yield ""
    yield from header(["question", "case", "value", "goal", ""], "llrrl")
    asked = ""
    for content, row in with_goals:
        cell, sign, bound = goal_of(row)
        question = "" if content["question"] == asked else content["question"]
        asked = content["question"]
        yield line([question, row["case"], named(cell, row["cells"][cell]), f"{sign} {shown(bound)}", outcome(row)])


def tables(rows: Iterable[Mapping[str, Any]]) -> Iterator[Iterator[str]]:
    """A table for all rows with the same cells, in the order in which such rows first come.

    Rows of a single cell, such as those that are there for their goals, share one, each cell with its name.
    """
    alike: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    single: list[Mapping[str, Any]] = []
    for row in rows:
        (single if len(row["cells"]) == 1 else alike.setdefault(tuple(row["cells"]), [])).append(row)
    for columns, of_one in alike.items():
        yield table(columns, [[shown(row["cells"][name]) for name in columns] for row in of_one], of_one)
    if single:
        yield table(("value",), [[named(name, v) for name, v in row["cells"].items()] for row in single], single)


def table(columns: tuple[str, ...], cells: Iterable[list[str]], rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A table of `rows`, whose cells are given as text; with columns for goals where a row has one."""
    goals = any("goal" in row for row in rows)
    yield from header(["", *columns, *(["goal", ""] if goals else [])], "l" + "r" * len(columns) + "rl" * goals)
    for texts, row in zip(cells, rows, strict=True):
        about_goal = ["", ""] if goals else []
        if "goal" in row:
            cell, sign, bound = goal_of(row)
            about_goal = [f"{cell} {sign} {shown(bound)}", outcome(row)]
        yield line([row["case"], *texts, *about_goal])


def named(cell: str, value: float | str) -> str:
    """A cell outside of its column."""
    return f"{cell} {shown(value)}"


def goal_of(row: Mapping[str, Any]) -> tuple[str, str, float]:
    """The cell it is about, ≥ or ≤, and the bound."""
    cell, sign, bound = re.fullmatch(r"(.+) ([≥≤]) (\S+)", row["goal"]).groups()  # type: ignore[union-attr]
    return cell, sign, float(bound)


def outcome(row: Mapping[str, Any]) -> str:
    """That a goal is met, or by what part of it it is missed."""
    if row["met"]:
        return "met"
    cell, _, bound = goal_of(row)
    value = row["cells"][cell]
    missed = f"{abs(value - bound) / abs(bound):.1%}" if bound else shown(abs(value))
    return f"**missed by {missed}**"


def header(columns: list[str], aligned: str) -> Iterator[str]:
    """The first two lines of a table; `aligned` has an l or an r for each column."""
    yield line(columns)
    yield line(["---" if side == "l" else "--:" for side in aligned])


def line(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--results", type=Path, default=RESULTS, help="folder of JSON, and for pictures")
    arguments.add_argument("--report", type=Path, default=RESULTS.parent / "RESULTS.md", help="file to write")
    args = arguments.parse_args()
    render(args.results, FINDINGS, args.report)
    print(args.report)


if __name__ == "__main__":
    main()
