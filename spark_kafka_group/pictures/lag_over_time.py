"""Lag and rate of a query's partitions over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import isnan, nan
from typing import TYPE_CHECKING, Any

from spark_kafka_group.pictures import canvas, progress_samples, themes, time_bins
from spark_kafka_group.pictures.elapsed import Elapsed
from spark_kafka_group.pictures.label_text import label
from spark_kafka_group.pictures.partition_rows import name_rows
from spark_kafka_group.pictures.progress_samples import Sample
from spark_kafka_group.pictures.themes import Theme
from spark_kafka_group.values.offsets import TopicPartition

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS, MOST_ROWS = 300, 600
Points = list[tuple[float, float]]


def lag(progress: Iterable[Mapping[str, Any]], theme: str = "light") -> Figure:
    """Lag of each partition, in records, and the records a second that the query reads of it.

    Up to seven partitions are lines. Of more, the lag is a map with a row a partition, and the rate a band from the
    slowest partition to the fastest.

    Parameters
    ----------
    progress
        ``query.recentProgress``, or dicts like its elements.
    theme
        ``"light"`` or ``"dark"``.

    Raises
    ------
    ValueError
        When there is no progress of a groupkafka source.
    ImportError
        When matplotlib is not installed.
    """
    colours, found = themes.named(theme), progress_samples.samples(progress)
    time = progress_samples.times(found)
    tps = sorted({tp for one in found for tp in (*one.lag, *one.read)})
    figure, (above, below) = canvas.canvas(colours, progress_samples.title(found, time))
    time.show(above, False)
    time.show(below)
    canvas.heading(above, colours, "Lag of each partition after each micro-batch")
    canvas.heading(below, colours, "Records a second of each partition, since the trigger before")
    below.set_ylabel("records/s")
    if len(tps) <= canvas.MOST_NAMED:
        _lines(above, below, found, tps, time, colours)
    else:
        _map(figure, above, found, tps, time, colours)
        _band(below, _known(_rates(found, tps, time)), time, colours)
    canvas.short_numbers(below.yaxis)
    canvas.from_zero(below)
    return figure


def _lines(
    above: Any, below: Any, found: Sequence[Sample], tps: Sequence[TopicPartition], time: Elapsed, theme: Theme
) -> None:
    rates, handles = _rates(found, tps, time), []
    for colour, tp in zip(theme.members, tps, strict=False):
        behind = [(time.at(one.time_ms), one.lag.get(tp, nan)) for one in found if one.lag]
        for axes, points in ((above, behind), (below, rates[tp])):
            points = _few(points, time)
            (line,) = axes.plot(
                [place for place, _ in points], [value for _, value in points], color=colour, linewidth=1.8,
                marker="o" if len(points) <= 30 else None, markersize=3.5,
            )  # fmt: skip
        handles.append((line, label(str(tp))))
    above.set_ylabel("lag (records)")
    canvas.from_zero(above)
    canvas.whole_numbers(above.yaxis)
    canvas.short_numbers(above.yaxis)
    canvas.legend(above, theme, handles)


def _few(points: Points, time: Elapsed) -> Points:
    if len(points) <= time_bins.MOST_POINTS:
        return points
    found = time_bins.band([point for point in points if not isnan(point[1])], time.length, COLUMNS)
    return list(zip(found.places, found.highest, strict=True))


def _rates(found: Sequence[Sample], tps: Sequence[TopicPartition], time: Elapsed) -> dict[TopicPartition, Points]:
    """NaN where the query did not own the partition, so that its line has a gap."""
    rates: dict[TopicPartition, Points] = {tp: [] for tp in tps}
    for before, one in pairwise(found):
        seconds = max((one.time_ms - before.time_ms) / 1000, 1e-3)
        for tp in tps:
            rates[tp].append((time.at(one.time_ms), one.read.get(tp, nan) / seconds))
    return rates


def _known(rates: Mapping[TopicPartition, Points]) -> Points:
    return [point for points in rates.values() for point in points if not isnan(point[1])]


def _map(
    figure: Any, axes: Any, found: Sequence[Sample], tps: Sequence[TopicPartition], time: Elapsed, theme: Theme
) -> None:
    """A row a partition; each micro-batch lasts until the next."""
    import numpy as np

    every = -(-len(tps) // MOST_ROWS)
    rows = {tp: row for row, tp in enumerate(tps[::every])}
    cells = np.full((len(rows), COLUMNS), np.nan)
    known = [one for one in found if one.lag]
    columns = [time_bins.bin_of(time.at(one.time_ms), time.length, COLUMNS) for one in known]
    for one, first, last in zip(known, columns, [*columns[1:], COLUMNS], strict=True):
        cells[:, first : max(last, first + 1)] = np.nan
        for tp, behind in one.lag.items():
            if tp in rows:
                cells[rows[tp], first : max(last, first + 1)] = behind
    extent = (0, time.length, len(rows) - 0.5, -0.5)
    image = axes.imshow(
        cells, extent=extent, aspect="auto", interpolation="nearest", cmap=theme.heat, vmin=0,
        vmax=max((behind for one in known for behind in one.lag.values()), default=0) or 1,
    )  # fmt: skip
    axes.patch.set(**canvas.hatched(theme))
    canvas.heading(axes, theme, "Lag of each partition after each micro-batch; hatched: not the query's")
    axes.grid(visible=False)
    name_rows(axes, [("", tp) for tp in rows], every)
    bar = figure.colorbar(image, ax=axes, pad=0.01, aspect=25)
    bar.set_label("lag (records)", color=theme.text, fontsize=canvas.TEXT_SIZE)
    bar.ax.tick_params(colors=theme.text, labelsize=canvas.SMALL_SIZE)
    bar.outline.set_visible(False)
    canvas.whole_numbers(bar.ax.yaxis)
    canvas.short_numbers(bar.ax.yaxis)


def _band(axes: Any, points: Points, time: Elapsed, theme: Theme) -> None:
    found = time_bins.band(points, time.length)
    area = axes.fill_between(found.places, found.lowest, found.highest, color=theme.members[0], alpha=0.35, linewidth=0)
    (line,) = axes.plot(found.places, found.middle, color=theme.members[0], linewidth=1.8)
    canvas.legend(axes, theme, [(line, "median"), (area, "slowest to\nfastest")])
