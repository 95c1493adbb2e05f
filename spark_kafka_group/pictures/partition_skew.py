"""How unequal the partitions of a query are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from spark_kafka_group.pictures import canvas, progress_samples, themes, time_bins
from spark_kafka_group.pictures.label_text import label, nth
from spark_kafka_group.pictures.progress_samples import Sample
from spark_kafka_group.values.offsets import TopicPartition

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_LABELS = 12
MOST_BARS = 400
MOST_APART = 60
"""Bars with space between them."""


def skew(progress: Iterable[Mapping[str, Any]], theme: str = "light") -> Figure:
    """Records read of each partition, most first, and how many times the average the largest partition has over time.

    The parameters and errors are those of :func:`spark_kafka_group.pictures.lag`.
    """
    colours, found = themes.named(theme), progress_samples.samples(progress)
    time = progress_samples.times(found)
    figure, (above, below) = canvas.canvas(colours, progress_samples.title(found, time))
    totals = _totals(found)
    _bars(above, totals, colours)
    points = [(time.at(one.time_ms), ratio) for one in found if (ratio := _ratio(one.read))]
    time.show(below)
    below.set_ylabel("times the average")
    canvas.heading(below, colours, "Largest partition of each micro-batch, compared to the average one")
    if not points:
        canvas.nothing(below, colours, "no records were read")
    elif len(points) > time_bins.MOST_POINTS:
        band = time_bins.band(points, time.length)
        below.fill_between(band.places, band.lowest, band.highest, color=colours.members[0], alpha=0.35, linewidth=0)
        below.plot(band.places, band.middle, color=colours.members[0], linewidth=1.8)
    else:
        below.plot(*zip(*points, strict=True), color=colours.members[0], linewidth=1.5, marker="o", markersize=3.5)
    below.axhline(1, color=colours.text, linewidth=0.8, linestyle="--")
    below.set_ylim(0, max((ratio for _, ratio in points), default=1.0) * 1.15)
    return figure


def _bars(axes: Any, totals: Mapping[TopicPartition, int], theme: themes.Theme) -> None:
    largest = sorted(totals, key=lambda tp: -totals[tp])
    every = -(-len(largest) // MOST_BARS)
    shown = largest[::every]
    width = 0.85 if len(shown) <= MOST_APART else 1.0
    axes.bar(range(len(shown)), [totals[tp] for tp in shown], color=theme.members[0], width=width, linewidth=0)
    average = fmean(totals.values()) if totals else 0.0
    line = axes.axhline(average, color=theme.members[1], linewidth=1.5, linestyle="--")
    _name(axes, shown, every)
    axes.set_xlim(-0.6, len(shown) - 0.4)
    axes.set_ylabel("records")
    axes.grid(axis="x", visible=False)
    canvas.from_zero(axes)
    canvas.whole_numbers(axes.yaxis)
    canvas.short_numbers(axes.yaxis)
    canvas.heading(axes, theme, _summary(totals, largest, average))
    canvas.legend(axes, theme, [(line, f"average\n{canvas.short(average)}")])


def _name(axes: Any, shown: Sequence[TopicPartition], every: int) -> None:
    if len(shown) > MOST_LABELS:
        topics = sorted({tp.topic for tp in shown})
        of_these = label(topics[0]) if len(topics) == 1 else f"{len(topics)} topics"
        axes.set_xlabel(f"rank of {nth(every) or 'each '}partition of {of_these}, by records read")
        canvas.whole_numbers(axes.xaxis)
        # A number alone would be read as that of a partition.
        axes.xaxis.set_major_formatter(lambda at, _: f"#{round(at) * every + 1:,}" if 0 <= at < len(shown) else "")
    elif len({tp.topic for tp in shown}) == 1:
        axes.set_xticks(range(len(shown)), [str(tp.partition) for tp in shown])
        axes.set_xlabel(f"partition of {label(shown[0].topic)}")
    else:
        names = [f"{label(tp.topic, 12)}-{tp.partition}" for tp in shown]
        axes.set_xticks(range(len(shown)), names, rotation=30, ha="right", rotation_mode="anchor")


def _summary(totals: Mapping[TopicPartition, int], largest: Sequence[TopicPartition], average: float) -> str:
    if not average:
        return "Records read of each partition"
    most = largest[0]
    ratio = totals[most] / average
    return f"Records read of each partition; {label(str(most))} has {ratio:.1f} times the average"


def _totals(found: Sequence[Sample]) -> dict[TopicPartition, int]:
    totals: dict[TopicPartition, int] = {}
    for one in found:
        for tp, size in one.read.items():
            totals[tp] = totals.get(tp, 0) + size
    return totals


def _ratio(read: Mapping[TopicPartition, int]) -> float:
    """The largest compared to the average; 0 if nothing was read."""
    total = sum(read.values())
    return max(read.values()) * len(read) / total if total else 0.0
