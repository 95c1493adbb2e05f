"""Writes the fault matrix, the tables of docs/reliability.md and the pictures, from the results of cells."""

from __future__ import annotations

import json
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faults import ROOT
from faults.cells import FILES
from faults.cells.registry import BOTH, CELLS, Cell
from faults.evidence import GROUPKAFKA
from faults.lines import RESULTS, counts, lines_of
from faults.report import growth, pictures
from faults.report.causes import ENDURANCE, cause

PAGE = ROOT / "docs" / "reliability.md"
TABLES = ROOT / "docs" / "results" / "fault-matrix.md"
PICTURES = ROOT / "docs" / "pictures"
NOT_IN_A_TABLE = r"[|`<>\n]"
EVERYTHING = "everything"
HEAD = """\
# Faults and losses, counted

`make faults` runs all of this, and writes this file. A query in real Spark reads from real brokers into parquet, while
producers write some hundred records a second and each fault is repeated. Each record has a name: producer, topic,
partition, sequence number. [Reliability](../reliability.md) says how they are counted, and what has to hold.

| column | meaning |
|---|---|
| source | `groupkafka`, or Spark's own `kafka` under the same fault |
| faults | how often the fault was repeated |
| records | those that producers had acknowledged |
| lost | records below the committed offset that the sink lacks, without those that the fault itself deletes |
| twice | rows that are more often than once in all sinks of the group, without those that an operator had read again |
| batches | micro-batches that were done |
| violations | broken invariants, by name, and how often; their texts are at the end |
| 1,000 records after, s | seconds from the end of a fault until 1,000 more records are done: median, and longest |

Spark's own `kafka` has no group: the offsets in its checkpoint count in place of committed ones.

A row may be twice without a violation: 1. another member read a batch again that was interrupted before its commit,
into a sink of its own, 2. it committed a part of such a batch, and the query read the rest again, 3. the sink only
appends, as the list of records that a RecordProcessor has handled. Any other row that is twice breaks the invariant
*nothing twice*.

```
make faults                                        # all cells, until each has its count: hours
make faults ONLY="driver-kill broker" COUNT=2      # a cell, and a family, with fewer faults
make faults ONLY=everything MINUTES=30             # random faults, several at the same time
make endurance HOURS=8                             # the same more quietly, and what processes hold meanwhile
```
"""
GREW = (
    "The slope is that of the second half of the run, with a level for each process, once it is warm. A process "
    "grows if it rises in its life by more than 5%, more than 20 MB, 3 threads or 5 descriptors, and more than "
    "twice what comes and goes."
)
PICTURE = "![What processes hold over hours](../pictures/endurance.png)"
REPEATED = (
    "Each has its cell and its seed: `make faults ONLY=cell SOURCE={source} SEED=seed` runs it again. A cause is "
    "found by hand, behind the run."
)


@dataclass(frozen=True)
class Tally:
    """All runs of a cell with one source."""

    cell: Cell
    source: str
    lines: Sequence[Mapping[str, Any]]

    def total(self, name: str) -> int:
        return sum(line[name] for line in self.lines)

    @property
    def counting_faults(self) -> int:
        return sum(line["faults"] for line in self.lines if counts(line, self.source))

    @property
    def violations(self) -> Counter[str]:
        counted: Counter[str] = Counter()
        for line in self.lines:
            counted.update(line["violations"])
        return counted

    @property
    def gaps_s(self) -> list[float]:
        """Seconds until 1,000 records were done, once the fault was over."""
        return [gap["progressed"] for line in self.lines for gap in line["gaps"] if gap["progressed"] is not None]


def tallies(results: Path) -> list[Tally]:
    """Of all cells that have results, in the order of families."""
    found = []
    for name in ordered():
        for source in BOTH:
            if lines := lines_of(name, source, results):
                found.append(Tally(CELLS[name], source, lines))
    return found


def ordered() -> list[str]:
    """Names of the cells, family by family."""
    files = [file.__name__ for file in FILES]
    by_file = sorted(CELLS, key=lambda name: files.index(CELLS[name].happen.__module__))
    families = list(dict.fromkeys(CELLS[name].family for name in by_file))
    return sorted(by_file, key=lambda name: families.index(CELLS[name].family))


def table(found: Iterable[Tally]) -> list[str]:
    """A row for each cell and source."""
    lines = [
        "| cell | source | faults | records | lost | twice | batches | violations | 1,000 records after, s |",
        "|---|---|--:|--:|--:|--:|--:|---|---|",
    ]
    for tally in found:
        gaps = tally.gaps_s
        after = f"{statistics.median(gaps):.1f}, at most {max(gaps):.1f}" if gaps else "-"
        wrong = ", ".join(f"{name}: {count}" for name, count in sorted(tally.violations.items())) or "none"
        numbers = [f"{tally.total(name):,}" for name in ("faults", "records", "lost", "twice", "batches")]
        lines.append(f"| {tally.cell.name} | `{tally.source}` | {' | '.join(numbers)} | {wrong} | {after} |")
    return lines


def not_run(found: Sequence[Tally]) -> list[str]:
    """Cells without results, and those with fewer faults that count than they are to have."""
    counted = {(tally.cell.name, tally.source): tally.counting_faults for tally in found}
    lines = []
    for name in ordered():
        cell = CELLS[name]
        for source in cell.sources:
            count = counted.get((name, source), 0)
            if count < cell.count:
                lines.append(f"| {name} | `{source}` | {count} of {cell.count} | {cell.what} |")
    if not lines:
        return ["None."]
    return ["`make faults` goes on with these.", "", "| cell | source | faults | fault |", "|---|---|---|---|", *lines]


def findings(found: Iterable[Tally], source: str) -> list[str]:
    """The text of each violation, a few of each run, and its cause."""
    lines = []
    for tally in found:
        runs = [line for line in tally.lines if line["findings"] and tally.source == source]
        for line in runs:
            lines += [f"- {tally.cell.name}, seed {line['seed']}: {shown(one)}" for one in line["findings"][:3]]
            lines += caused(tally.cell.name, source, line["seed"])
    return lines or ["None."]


def shown(finding: Mapping[str, Any]) -> str:
    """A violation, in a line of a page."""
    return f"{finding['invariant']}: {re.sub(NOT_IN_A_TABLE, ' ', finding['problem'])[:300]}"


def caused(cell: str, source: str, seed: int) -> list[str]:
    """The cause of a run's violations, below them."""
    known = cause(cell, source, seed)
    return [f"  - *Cause:* {known}"] if known else []


def reliability(found: Sequence[Tally], results: Path = RESULTS) -> str:
    """The text of the fault matrix."""
    parts = [HEAD]
    for family in dict.fromkeys(CELLS[name].family for name in ordered()):
        of_family = [tally for tally in found if tally.cell.family == family]
        if of_family:
            title = "Everything at once" if family == EVERYTHING else f"Family {family}"
            parts.append(f"## {title}\n\n" + "\n".join(table(of_family)) + "\n")
            meant = dict.fromkeys(f"- {tally.cell.name}: {tally.cell.what}." for tally in of_family)
            parts.append("\n".join(meant) + "\n")
            parts += [f"{line}\n" for line in steps(of_family)]
            if family == EVERYTHING:
                parts += [f"{line}\n" for line in storms(of_family)]
    hours = endurance(results)
    if hours:
        parts += ["## Endurance\n", *(f"{line}\n" for line in hours)]
    for source in BOTH:
        parts.append(
            f"## Violations of `{source}`\n\n{REPEATED.format(source=source)}\n\n"
            + "\n".join(findings(found, source))
            + "\n"
        )
    parts.append("## Not run, or not often enough\n\n" + "\n".join(not_run(found)) + "\n")
    versions = sorted({line["code"] for tally in found for line in tally.lines})
    parts.append(f"Versions of the package (git's names of its tree): {', '.join(versions) or 'none'}.\n")
    return "\n".join(parts)


def steps(found: Iterable[Tally]) -> list[str]:
    """How many queries stood where when they were hit, in runs of several queries in one program; and what was seen."""
    lines = []
    for tally in found:
        counted: Counter[str] = Counter()
        for line in tally.lines:
            counted.update(line.get("steps", {}))
        if counted:
            seeds = ", ".join(str(line["seed"]) for line in tally.lines)
            oldest = max((line.get("oldest_transaction_s", 0) for line in tally.lines), default=0)
            open_for = f"; the oldest transaction that was seen open was {oldest:.0f} s old" if oldest else ""
            chosen = [line["by_choice"] for line in tally.lines if "by_choice" in line]
            if chosen:
                missing, twice = (sum(one[name] for one in chosen) for name in ("missing", "twice"))
                open_for = f"; as the tool was told {missing:,} rows are missing, and {twice:,} there twice{open_for}"
            tasks: Counter[str] = Counter()
            for line in tally.lines:
                tasks.update(line.get("tasks", {}))
            open_for = f"; of tasks {listed(tasks)}{open_for}" if tasks else open_for
            again = f"{tally.total('restarts')} times a query that had ended was started again"
            lines.append(
                f"{tally.cell.name}: {listed(counted)}; {tally.total('rows'):,} rows published, {again}{open_for} "
                f"(seeds {seeds})."
            )
    return lines


def storms(found: Iterable[Tally]) -> list[str]:
    """What happened in runs of everything at once."""
    lines = []
    for tally in found:
        kinds: Counter[str] = Counter()
        for line in tally.lines:
            kinds.update(line.get("kinds", {}))
        minutes = tally.total("seconds") / 60
        seeds = f"seed{'s' * (len(tally.lines) > 1)} " + ", ".join(str(line["seed"]) for line in tally.lines)
        lines.append(
            f"`{tally.source}`: {minutes:.0f} minutes, {tally.total('faults')} storms of {kinds.total()} faults, up to "
            f"{max(line.get('at_once', 0) for line in tally.lines)} at the same time ({seeds}): {listed(kinds)}."
        )
    return lines


def listed(kinds: Mapping[str, int]) -> str:
    """Kinds of faults, the most frequent first."""
    return ", ".join(f"{count} {name}" for name, count in sorted(kinds.items(), key=lambda kind: (-kind[1], kind[0])))


def endurance(results: Path) -> list[str]:
    """What hours of it have shown."""
    path = results / "endurance.json"
    if not path.exists():
        return []
    run = json.loads(path.read_text())
    kinds, pieces = run["kinds"], len(run["pieces"])
    counted = ", ".join(f"{name} {count:,}" for name, count in (run["counted"] or {"no piece judged": 0}).items())
    text = (
        f"{run['hours']:.1f} hours in {pieces} piece{'s' * (pieces != 1)}, seed {run['seed']}: {run['storms']} storms "
        f"of {sum(kinds.values())} faults, up to {run['at_once']} at the same time: {listed(kinds)}."
    )
    wrongs = f"Counted: {counted}. Violations: {len(run['findings'])}."
    lines = [text, wrongs, "\n".join(growth.table(growth.Growth(**one) for one in run["growth"])), GREW, PICTURE]
    wrong = [f"- {shown(one)}" for one in run["findings"][:20]]
    return lines + (["\n".join(wrong + caused(ENDURANCE, GROUPKAFKA, run["seed"]))] if wrong else [])


def summary(found: Sequence[Tally]) -> list[str]:
    """A row for each family and source, for the page."""
    lines = [
        "| faults of | source | cells | faults | records | lost | twice | violations |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for family in dict.fromkeys(tally.cell.family for tally in found):
        for source in BOTH:
            of_both = [tally for tally in found if tally.cell.family == family and tally.source == source]
            if of_both:
                sums = [sum(t.total(name) for t in of_both) for name in ("faults", "records", "lost", "twice")]
                wrong = sum(sum(tally.violations.values()) for tally in of_both)
                numbers = [f"{number:,}" for number in (len(of_both), *sums, wrong)]
                lines.append(f"| {family} | `{source}` | {' | '.join(numbers)} |")
    return lines


def write(
    results: Path = RESULTS,
    tables: Path = TABLES,
    page: Path = PAGE,
    folder: Path = PICTURES,
    samples: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Write everything. The picture of an endurance run is left as it is, unless its samples are given."""
    found = tallies(results)
    tables.write_text(reliability(found, results))
    drawn = pictures.draw(found, folder)
    if samples:
        pictures.endurance(samples, folder / "endurance.png")
    shown = "\n\n".join(f"![{title}](pictures/{path.name})" for path, title in drawn)
    begin, end = "<!-- begin faults; `make faults` writes this -->", "<!-- end -->"
    before, _, rest = page.read_text().partition(begin)
    after = rest.partition(end)[2]
    page.write_text(f"{before}{begin}\n\n" + "\n".join(summary(found)) + f"\n\n{shown}\n\n{end}{after}")


if __name__ == "__main__":
    write()
