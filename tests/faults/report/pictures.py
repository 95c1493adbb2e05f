"""Draws how long it takes until a query goes on: a dot for each fault. The same results give the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faults.report.growth import MEASURES, UNITS, roles

if TYPE_CHECKING:
    from faults.report import Tally

LINES = ["#1f5fa8", "#7f7f7f", "#bcbd22", "#8c564b", "#2ca02c", "#d62728"]
COLOURS = {"groupkafka": "#1f5fa8", "kafka": "#e2711d"}
STYLE = {
    "font.size": 9.0, "axes.titlesize": 10.0, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.color": "#dddddd", "grid.linewidth": 0.6, "axes.axisbelow": True, "figure.dpi": 100,
}  # fmt: skip


def draw(found: Sequence[Tally], folder: Path) -> list[tuple[Path, str]]:
    """A picture for each family that has results, in place of older ones; returns files and titles."""
    from matplotlib import rc_context

    folder.mkdir(exist_ok=True)
    for old in folder.glob("faults-*.png"):
        old.unlink()
    drawn = []
    with rc_context(STYLE):
        for family in dict.fromkeys(tally.cell.family for tally in found):
            of_family = [tally for tally in found if tally.cell.family == family and tally.gaps_s]
            if of_family:
                path = folder / f"faults-{family}.png"
                gaps(of_family, f"Seconds until 1,000 records are done, once a fault is over: {family}", path)
                drawn.append((path, f"Gaps after faults: {family}"))
    return drawn


def endurance(samples: Sequence[Mapping[str, Any]], file: Path) -> None:
    """What processes held over hours, a row for each measure and one for the lag; a line where a piece began."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(8.0, 9.0), layout="constrained")
        rows = figure.subplots(len(MEASURES) + 1, 1, sharex=True)
        names = roles(samples)
        for axes, (index, measure) in zip(rows, enumerate(MEASURES, start=1), strict=False):
            for name, colour in zip(names, LINES * len(names), strict=False):
                axes.plot(*held(samples, name, index), color=colour, linewidth=1.1, label=name)
            axes.set_title(f"{measure}, {UNITS[measure]}" if UNITS[measure] else measure, loc="left")
            axes.set_ylim(bottom=0)
        axes = rows[-1]
        lag = [float("nan") if sample["lag"] is None else sample["lag"] for sample in samples]
        axes.plot([sample["hours"] for sample in samples], lag, color=COLOURS["groupkafka"], linewidth=0.8)
        axes.set_title("lag in the query's progress, records", loc="left")
        axes.set_ylim(bottom=0)
        axes.set_xlabel("hours; dotted: a piece of the run begins")
        for one, before in zip(samples[1:], samples, strict=False):
            if one["piece"] != before["piece"]:
                for axes in rows:
                    axes.axvline(one["hours"], color="black", linestyle=":", linewidth=0.8)
        figure.legend(*rows[0].get_legend_handles_labels(), frameon=False, loc="outside upper center", ncols=6)
        figure.savefig(file, metadata={"Software": None})


def held(samples: Sequence[Mapping[str, Any]], role: str, index: int) -> tuple[list[float], list[float]]:
    """Hours and values of one kind of process, with a gap where another process takes its place."""
    hours: list[float] = []
    values: list[float] = []
    last: float | None = None
    for sample in samples:
        of = sample["of"].get(role)
        if of is None or (last is not None and of[0] != last):
            hours.append(sample["hours"])
            values.append(float("nan"))
        last = of[0] if of else None
        if of is not None:
            hours.append(sample["hours"])
            values.append(of[index])
    return hours, values


def gaps(tallies: Sequence[Tally], title: str, file: Path) -> None:
    """A row for each cell and source, a dot for each fault; a mark at the bound."""
    from matplotlib.figure import Figure  # without pyplot there is no display to look for

    names = list(dict.fromkeys(tally.cell.name for tally in tallies))
    figure = Figure(figsize=(8.0, 1.0 + 0.42 * len(names)), layout="constrained")
    axes = figure.add_subplot()
    for tally in tallies:
        place = names.index(tally.cell.name) + (-0.14 if tally.source == "groupkafka" else 0.14)
        values = tally.gaps_s
        label = tally.source if tally.source not in axes.get_legend_handles_labels()[1] else None
        axes.plot(
            values, [place] * len(values), "o", color=COLOURS[tally.source], markersize=4, alpha=0.55, label=label
        )
        bound = max(gap["bound"] for line in tally.lines for gap in line["gaps"])
        axes.plot([bound, bound], [place - 0.12, place + 0.12], color="black", linewidth=1.5)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds; black mark: twice the session timeout and 5 s")
    axes.set_title(title)
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.55 / (0.6 + 0.42 * len(names))), ncols=2)
    figure.savefig(file, metadata={"Software": None})
