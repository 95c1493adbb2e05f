"""Draws docs/pictures/dashboard.png: the panels of conf/grafana/, from a Prometheus that scrapes queries of a broker.

python docs/draw_dashboard.py [--theme light] [--theme dark] [--scale 1] [--directory docs/pictures]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import monitoring
from monitored_queries import MonitoredQueries
from PIL import Image
from prometheus_server import PrometheusServer
from pyspark.sql import SparkSession

from spark_kafka_group import GroupKafkaDataSource, GroupKafkaListener
from spark_kafka_group.pictures import canvas
from spark_kafka_group.pictures.picture import Picture
from spark_kafka_group.testing import KafkaCluster

COLUMNS, DPI = 3, 100
WIDTH_PX, STATS_PX, ROW_PX = 1500, 90, 270
STEP_S = 1
UNITS = {"s": "s", "ms": "ms", "cps": "a second", "short": "", "none": ""}
SMALL, COLOURS = 8, 96


@dataclass(frozen=True)
class Drawn:
    """A panel with its numbers: a stat's one, or a graph's series as times, values and name."""

    panel: monitoring.Panel
    number: float | None
    series: Sequence[tuple[str, Sequence[float], Sequence[float]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--theme", choices=sorted(canvas.THEMES), action="append")
    parser.add_argument("--scale", type=float, default=1.0, help="length of the run; 1 is three minutes")
    parser.add_argument("--directory", type=Path, default=Path(__file__).parent / "pictures")
    parser.add_argument("--keep", type=Path, help="write the numbers there, and take them from there if it exists")
    args = parser.parse_args()
    drawn = _kept(args.keep) if args.keep and args.keep.exists() else measured(args.scale)
    if args.keep:
        args.keep.write_text(json.dumps([[each.number, each.series] for each in drawn]))
    for theme in args.theme or ["light"]:
        name = "dashboard.png" if theme == "light" else f"dashboard-{theme}.png"
        write(draw(drawn, theme), args.directory / name)


def write(figure: Picture, file: Path) -> None:
    """Write a PNG with few colours, a quarter as large."""
    png = BytesIO()
    figure.write(png, "png")
    Image.open(png).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(file, optimize=True)


def _kept(file: Path) -> list[Drawn]:
    kept = json.loads(file.read_text())
    return [Drawn(panel, *numbers) for panel, numbers in zip(monitoring.panels(), kept, strict=True)]


def measured(scale: float) -> list[Drawn]:
    """The panels, after a run with a member that comes and goes, records that expire, and a broker that is away."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.streaming.noDataProgressEventInterval", "500").getOrCreate()
    )  # fmt: skip
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(GroupKafkaDataSource)
    with (
        tempfile.TemporaryDirectory() as directory,
        GroupKafkaListener(spark, prometheus_port=0) as listener,
        PrometheusServer([listener.prometheus_port or 0], monitoring.RULES) as prometheus,
        KafkaCluster() as kafka,
        MonitoredQueries(spark, kafka, Path(directory)) as queries,
    ):
        began = time.time()
        time.sleep(50 * scale)
        second = queries.second_member()
        time.sleep(30 * scale)
        second.stop()
        queries.running.remove(second)
        time.sleep(20 * scale)
        queries.lose_records()
        time.sleep(30 * scale)
        with queries.broker_away():
            time.sleep(20 * scale)
        time.sleep(30 * scale)
        return [_drawn(panel, prometheus, began) for panel in monitoring.panels()]


def _drawn(panel: monitoring.Panel, prometheus: PrometheusServer, began_s: float) -> Drawn:
    if panel.kind == "stat":
        (query,) = panel.queries
        return Drawn(panel, prometheus.value(query.over("15s")), [])
    series = []
    for query in panel.queries:
        for each in prometheus.between(query.over("15s"), began_s, time.time(), f"{STEP_S}s"):
            times = [at - began_s for at, _ in each["values"]]
            series.append((query.name(each["metric"]), times, [float(value) for _, value in each["values"]]))
    return Drawn(panel, None, series)


def draw(drawn: Sequence[Drawn], theme: str) -> Picture:
    """All panels on one picture: numbers above, graphs below."""
    colours = canvas.theme_named(theme)
    stats, graphs = ([each for each in drawn if (each.panel.kind == "stat") == wanted] for wanted in (True, False))
    rows = -(-len(graphs) // COLUMNS)
    heights = [STATS_PX, *[ROW_PX] * rows]
    figure = Picture(figsize=(WIDTH_PX / DPI, sum(heights) / DPI), dpi=DPI, layout="constrained")
    figure.set_facecolor(colours.background)
    above, below = figure.subfigures(2, 1, height_ratios=[STATS_PX, ROW_PX * rows])
    for axes, each in zip(above.subplots(1, len(stats)), stats, strict=True):
        above.set_facecolor(colours.background)
        _number(axes, each, colours)
    below.set_facecolor(colours.background)
    ends = max((times[-1] for each in graphs for _, times, _ in each.series), default=1)
    for axes, each in zip(below.subplots(rows, COLUMNS).flat, graphs, strict=False):
        _graph(axes, each, colours, ends)
    return figure


def _number(axes: Any, each: Drawn, theme: canvas.Theme) -> None:
    axes.set_facecolor(theme.panel)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color(theme.grid)
    unit = f" {UNITS[each.panel.unit]}" if each.panel.unit == "s" else ""
    number = each.number if each.panel.decimals is None or each.number is None else round(each.number)
    text = "no data" if number is None else f"{canvas.short(number)}{unit}"
    axes.text(0.5, 0.45, text, ha="center", va="center", transform=axes.transAxes, color=theme.text, fontsize=17)
    axes.set_title(each.panel.title, color=theme.text, fontsize=canvas.SMALL_SIZE)


def _graph(axes: Any, each: Drawn, theme: canvas.Theme, end_s: float) -> None:
    canvas.dress(axes, theme)
    canvas.heading(axes, theme, each.panel.title)
    for number, (name, times, values) in enumerate(each.series):
        colour = theme.members[number % len(theme.members)]
        if each.panel.style == "bars":
            axes.bar(times, values, width=STEP_S, color=colour, label=name)
        else:
            axes.plot(*_with_gaps(times, values), color=colour, linewidth=1.5, label=name)
    axes.set_xlim(0, end_s)
    axes.set_ylim(0, None if any(value > 0 for *_, values in each.series for value in values) else 1)
    canvas.short_numbers(axes.yaxis)
    axes.set_ylabel(UNITS[each.panel.unit])
    axes.xaxis.set_major_formatter(lambda value, _: f"{int(value) // 60}:{int(value) % 60:02}")
    if each.series:
        axes.legend(
            loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=3, frameon=False, fontsize=SMALL,
            labelcolor=theme.text, handlelength=1.2, columnspacing=1.0,
        )  # fmt: skip


def _with_gaps(times: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
    """A line that ends where a series has no samples."""
    at, shown = list(times[:1]), list(values[:1])
    for before, time_s, value in zip(times, times[1:], values[1:], strict=False):
        if time_s - before > 2 * STEP_S:
            at.append(before + STEP_S)
            shown.append(float("nan"))
        at.append(time_s)
        shown.append(value)
    return at, shown


if __name__ == "__main__":
    main()
