"""Draws a benchmark's results: a bar for each ratio, and curves. The same results give the same bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

GROUPKAFKA, KAFKA = "#1f5fa8", "#e2711d"
OTHERS = ("#4d9221", "#8e5ea2", "#777777", "#c9a227", "#2f9c95", "#b23a48", "#000000", "#d48fb5")
LINES = ("-", "--", ":", "-.")
LINEAR_UP_TO = 12.0
"""Ratios beyond this are drawn on a logarithmic scale, so that smaller ones can be distinguished."""
MOST_TICKS = 12
STYLE = {
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "figure.titlesize": 10.0,
    "figure.labelsize": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "figure.dpi": 100,
}


def draw(name: str, content: Mapping[str, Any], folder: Path) -> list[tuple[Path, str]]:
    """Draw a program's pictures into `folder`, in place of older ones; returns their files and titles."""
    for old in folder.glob(f"{name}-*.png"):
        old.unlink()
    rows = [row for row in content["rows"] if "ratio" in row["cells"]]
    if not rows and not content["curves"]:
        return []
    from matplotlib import rc_context

    drawn = []
    with rc_context(STYLE):
        if rows:
            drawn.append((folder / f"{name}-ratio.png", "Times as fast"))
            ratios(rows, content["question"], drawn[-1][0])
        for curve in content["curves"]:
            slug = re.sub(r"[^a-z0-9]+", "-", curve["title"].lower()).strip("-")
            drawn.append((folder / f"{name}-{slug}.png", curve["title"]))
            curves(curve, drawn[-1][0])
    return drawn


def ratios(rows: Sequence[Mapping[str, Any]], title: str, file: Path) -> None:
    """A bar for each row, in the colour of the side that is faster."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    values = [float(row["cells"]["ratio"]) for row in rows]
    goals = [goal_of_ratio(row) for row in rows]
    highest = max([*values, *(goal for goal in goals if goal is not None), 1.0])
    figure, axes = _figure(8.0, 0.9 + 0.27 * len(rows))
    places = range(len(rows))
    logarithmic = highest > LINEAR_UP_TO
    if logarithmic:
        axes.set_xscale("log")
        lowest = min([*values, *(goal for goal in goals if goal is not None), 1.0])
        axes.set_xlim(lowest / 1.4, highest * 1.5)
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_minor_locator(NullLocator())
        lengths, left = [value - 1 for value in values], 1.0
    else:
        axes.set_xlim(0, highest * 1.12)
        lengths, left = values, 0.0
    colours = [GROUPKAFKA if value >= 1 else KAFKA for value in values]
    axes.barh(places, lengths, left=left, height=0.68, color=colours)
    for place, value, goal in zip(places, values, goals, strict=True):
        beyond = max(value, 1.0) if logarithmic else value
        if goal is not None:
            axes.plot([goal, goal], [place - 0.42, place + 0.42], color="black", linewidth=2)
            if beyond < goal < beyond * 1.1:
                beyond = goal
        axes.annotate(f"{value:.2f}" if value < 10 else f"{value:.0f}", (beyond, place), (4, 0),
                      textcoords="offset points", va="center", fontsize=8,
                      bbox={"boxstyle": "square,pad=0.1", "color": "white", "alpha": 0.8})  # fmt: skip
    axes.axvline(1, color="black", linewidth=1, linestyle="--")
    axes.set_yticks(places, [row["case"] for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    marked = "; black mark: the goal" if any(goal is not None for goal in goals) else ""
    figure.supxlabel(f"times as fast; blue: groupkafka is faster, orange: the other side is{marked}")
    figure.suptitle(title)
    _save(figure, file)


def curves(curve: Mapping[str, Any], file: Path) -> None:
    """A line for each series over a logarithmic x."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

    figure, axes = _figure(6.4, 3.8)
    styles = _styles(curve["series"])
    for name, points in curve["series"].items():
        axes.plot(*zip(*points, strict=True), label=name, marker="o", markersize=3.5, **styles[name])
    xs = sorted({x for points in curve["series"].values() for x, _ in points})
    ys = [y for points in curve["series"].values() for _, y in points]
    above_zero = [x for x in xs if x > 0]
    if len(above_zero) < len(xs):  # zero has no logarithm
        axes.set_xscale("symlog", linthresh=min(above_zero, default=1.0), linscale=0.4)
    else:
        axes.set_xscale("log")
    if len(xs) <= MOST_TICKS:
        axes.xaxis.set_major_locator(FixedLocator(xs))
        axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    if min(ys) > 0 and max(ys) > 10 * min(ys):
        axes.set_yscale("log")
        subs = (1.0, 2.0, 5.0) if max(ys) < 1000 * min(ys) else (1.0,)
        axes.yaxis.set_major_locator(LogLocator(subs=subs))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(0, max(ys) * 1.1)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axes.set_xlabel(curve["x"])
    axes.set_ylabel(curve["y"])
    axes.set_title(curve["title"])
    if len(curve["series"]) > 4:
        axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        figure.set_size_inches(8.4, 3.8)
    else:
        axes.legend(fontsize=8, framealpha=0.8)
    _save(figure, file)


def goal_of_ratio(row: Mapping[str, Any]) -> float | None:
    """The bound of a goal that is about the ratio."""
    goal = re.fullmatch(r"ratio [≥≤] (\S+)", row.get("goal", ""))
    return None if goal is None else float(goal[1])


def short(value: float) -> str:
    """A tick's text: 250 k, 4 M."""
    for unit, name in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"


def _styles(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """A side has its colour in all pictures, and another line where a picture has several of it."""
    others, styles = cycle((colour, line) for line in LINES for colour in OTHERS), {}
    lines = {side: cycle(LINES) for side in (GROUPKAFKA, KAFKA)}
    for name in names:
        words = name.split()
        side = GROUPKAFKA if "groupkafka" in words else KAFKA if "kafka" in words else None
        colour, line = (side, next(lines[side])) if side else next(others)
        styles[name] = {"color": colour, "linestyle": line}
    return styles


def _figure(width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure  # without pyplot there is no display to look for

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def _save(figure: Any, file: Path) -> None:
    figure.savefig(file, metadata={"Software": None})
