"""Pictures of a query's progress: lag and rate of its partitions, how unequal they are, and how long batches took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from math import isnan, nan
from statistics import fmean
from typing import TYPE_CHECKING, Any

from spark_kafka_group.metrics.group_metrics import ListenersCommits, metrics_of
from spark_kafka_group.pictures import canvas
from spark_kafka_group.pictures.canvas import Elapsed, Theme, elapsed, label, nth
from spark_kafka_group.pictures.owned_partitions import name_rows
from spark_kafka_group.text.foreign_text import excerpt
from spark_kafka_group.values.offsets import GROUP_KEY, GroupOffset, TopicPartition, offset_of_any_source

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from spark_kafka_group.pictures.picture import Picture


@dataclass(frozen=True)
class ProgressSample:
    """One progress.

    `lag`: records behind the end of the log, by partition; empty where the progress does not have it.
    `read`: offsets that the micro-batch read, by partition; 0 for those that had no new records.
    """

    time_ms: float  # when its trigger began, since the epoch
    batch: int
    groups: frozenset[str]
    durations_ms: Mapping[str, float]  # by phase, as ``durationMs`` has them; with ``triggerExecution``, the whole
    lag: Mapping[TopicPartition, int]
    read: Mapping[TopicPartition, int]


def samples(progress: Iterable[Mapping[str, Any]]) -> tuple[ProgressSample, ...]:
    """Those that have a groupkafka source, in order of time.

    `progress`: StreamingQueryProgress, or dicts of the same names, as ``query.recentProgress`` has and as its JSON is.
    Raises ValueError when there is none, or it is no progress.
    """
    found = sorted((one for each in progress if (one := _sample(each))), key=lambda sample: sample.time_ms)
    if not found:
        raise ValueError("there is no progress of a groupkafka source: take recentProgress after the first micro-batch")
    return tuple(found)


def _begun(
    progress: Iterable[Mapping[str, Any]], theme: str, heights_px: Sequence[float] = (canvas.TALL_PX, canvas.LOW_PX)
) -> tuple[Theme, tuple[ProgressSample, ...], Elapsed, Picture, list[Any]]:
    """Theme, samples, their time, and a figure with axes that has groups and time for its title."""
    colours, found = canvas.theme_named(theme), samples(progress)
    time = elapsed(ms for one in found for ms in (one.time_ms, one.time_ms + one.durations_ms.get(WHOLE, 0.0)))
    groups = frozenset[str]().union(*(one.groups for one in found))
    title = canvas.title("group", groups, time.range) if groups else f"query: {time.range}"
    return colours, found, time, *canvas.canvas(colours, title, heights_px)


def _sample(progress: Mapping[str, Any]) -> ProgressSample | None:
    try:
        ours = [source for each in progress["sources"] if (source := _source(each))]
        time_ms = datetime.fromisoformat(progress["timestamp"]).timestamp() * 1000
        durations = {str(name): float(ms) for name, ms in progress["durationMs"].items()}
        batch = int(progress["batchId"])
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise ValueError(f"{excerpt(progress)} is not the progress of a query: {error}") from error
    if not ours:
        return None
    groups = frozenset(str(group) for group, _, _ in ours if group)
    lag = {tp: behind for _, of_source, _ in ours for tp, behind in of_source.items()}
    read = {tp: size for _, _, of_source in ours for tp, size in of_source.items()}
    return ProgressSample(time_ms, batch, groups, durations, lag, read)


def _source(source: Mapping[str, Any]) -> tuple[str, dict[TopicPartition, int], dict[TopicPartition, int]] | None:
    """Group, lag and records of a source; None of a source of others."""
    names = ("startOffset", "endOffset", "latestOffset")
    first, last, latest = (offset_of_any_source(source.get(name)) for name in names)
    if GROUP_KEY not in last:
        return None
    numbers = metrics_of("", latest, ListenersCommits(), 0.0)
    lag = {tp: int(values["records-lag"]) for tp, values in numbers.partitions.items()}
    return numbers.group, lag, _read(GroupOffset.from_json(first), GroupOffset.from_json(last))


def _read(start: GroupOffset, end: GroupOffset) -> dict[TopicPartition, int]:
    starts = {**end.positions, **start.positions, **({} if start == end else end.moved)}
    return {tp: max(0, position - starts[tp]) for tp, position in end.positions.items()}


WHOLE = "triggerExecution"
MOST_BARS = 150
LONGER = 2.5  # times the length that nine of ten bars do not exceed: longer ones are cut
MOST_NAMED = 4


def durations(progress: Iterable[Mapping[str, Any]], theme: str = "light") -> Figure:
    """How long each micro-batch took, by phase: a bar a batch, of many batches a bar the average of some in a row.

    Phases are those of ``durationMs``; "other" is what the trigger took beside them. The parameters and errors are
    those of :func:`spark_kafka_group.pictures.lag`.
    """
    colours, found, _, figure, (axes,) = _begun(progress, theme, (canvas.WHOLE_PX,))
    each = -(-len(found) // MOST_BARS)
    parts = [found[at : at + each] for at in range(0, len(found), each)]
    phases, handles, bottoms = _phases(found), [], [0.0] * len(parts)
    for colour, phase in zip((*colours.members, colours.rest), phases, strict=False):
        heights = [fmean(_ms(one.durations_ms, phase, phases) for one in part) for part in parts]
        bars = axes.bar(range(len(parts)), heights, bottom=bottoms, color=colour, width=0.9, linewidth=0)
        handles.append((bars, label(phase)))
        bottoms = [below + height for below, height in zip(bottoms, heights, strict=True)]
    _cut(axes, bottoms, colours)
    axes.set_ylabel("duration (ms)")
    axes.grid(axis="x", visible=False)
    axes.set_xlim(-0.6, len(parts) - 0.4)
    axes.xaxis.set_major_formatter(lambda at, _: str(parts[round(at)][0].batch) if 0 <= at < len(parts) else "")
    canvas.whole_numbers(axes.xaxis)
    axes.set_xlabel("micro-batch" if each == 1 else f"first of {each} micro-batches, whose average a bar is")
    canvas.plain_numbers(axes.yaxis)
    canvas.heading(axes, colours, "Duration of each micro-batch, by phase")
    canvas.legend(axes, colours, handles[::-1])
    return figure


def _cut(axes: Any, heights: Sequence[float], theme: Theme) -> None:
    """Let few bars that are much longer than all others, as the first often is, end at the top, with their length."""
    usual = sorted(heights)[max(0, len(heights) * 9 // 10 - 1)]
    longer = [place for place, height in enumerate(heights) if height > LONGER * usual]
    if not usual or not longer:
        return
    axes.set_ylim(0, LONGER * usual)
    for place in longer[:MOST_NAMED]:
        axes.annotate(
            f"{heights[place]:,.0f} ms", (place, 1), (4, -3), xycoords=("data", "axes fraction"),
            textcoords="offset points", va="top", color=theme.text, fontsize=canvas.SMALL_SIZE,
            bbox={"boxstyle": "square,pad=0.15", "color": theme.panel, "alpha": 0.85},
        )  # fmt: skip


def _phases(found: Sequence[ProgressSample]) -> list[str]:
    """The longest phases, and the others as one."""
    phases = dict.fromkeys(phase for one in found for phase in one.durations_ms if phase != WHOLE)
    longest = sorted(phases, key=lambda phase: -sum(one.durations_ms.get(phase, 0.0) for one in found))
    return [*longest[: canvas.MOST_NAMED - 1], "other"]


def _ms(durations_ms: Mapping[str, float], phase: str, phases: Sequence[str]) -> float:
    if phase != "other":
        return durations_ms.get(phase, 0.0)
    whole = durations_ms.get(WHOLE, sum(durations_ms.values()))
    return max(0.0, whole - sum(durations_ms.get(name, 0.0) for name in phases[:-1]))


MOST_LABELS = 12
MOST_PARTITIONS = 400
MOST_APART = 60  # bars with space between them


def skew(progress: Iterable[Mapping[str, Any]], theme: str = "light") -> Figure:
    """Records read of each partition, most first, and how many times the average the largest partition has over time.

    The parameters and errors are those of :func:`spark_kafka_group.pictures.lag`.
    """
    colours, found, time, figure, (above, below) = _begun(progress, theme)
    totals = _totals(found)
    _bars(above, totals, colours)
    points = [(time.at(one.time_ms), ratio) for one in found if (ratio := _ratio(one.read))]
    time.show(below)
    below.set_ylabel("times the average")
    canvas.heading(below, colours, "Largest partition of each micro-batch, compared to the average one")
    if not points:
        canvas.nothing(below, colours, "no records were read")
    elif len(points) > canvas.MOST_POINTS:
        canvas.draw_band(below, points, time.length, colours)
    else:
        below.plot(*zip(*points, strict=True), color=colours.members[0], linewidth=1.5, marker="o", markersize=3.5)
    below.axhline(1, color=colours.text, linewidth=0.8, linestyle="--")
    below.set_ylim(0, max((ratio for _, ratio in points), default=1.0) * 1.15)
    return figure


def _bars(axes: Any, totals: Mapping[TopicPartition, int], theme: canvas.Theme) -> None:
    largest = sorted(totals, key=lambda tp: -totals[tp])
    every = -(-len(largest) // MOST_PARTITIONS)
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


def _totals(found: Sequence[ProgressSample]) -> Counter[TopicPartition]:
    totals: Counter[TopicPartition] = Counter()
    for one in found:
        totals.update(one.read)
    return totals


def _ratio(read: Mapping[TopicPartition, int]) -> float:
    """The largest compared to the average; 0 if nothing was read."""
    total = sum(read.values())
    return max(read.values()) * len(read) / total if total else 0.0


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
    colours, found, time, figure, (above, below) = _begun(progress, theme)
    tps = sorted({tp for one in found for tp in (*one.lag, *one.read)})
    time.show(above, False)
    time.show(below)
    canvas.heading(above, colours, "Lag of each partition after each micro-batch")
    canvas.heading(below, colours, "Records a second of each partition, since the trigger before")
    below.set_ylabel("records/s")
    if len(tps) <= canvas.MOST_NAMED:
        _lines(above, below, found, tps, time, colours)
    else:
        _map(figure, above, found, tps, time, colours)
        known = [point for points in _rates(found, tps, time).values() for point in points if not isnan(point[1])]
        line, area = canvas.draw_band(below, known, time.length, colours)
        canvas.legend(below, colours, [(line, "median"), (area, "slowest to\nfastest")])
    canvas.short_numbers(below.yaxis)
    canvas.from_zero(below)
    return figure


def _lines(
    above: Any, below: Any, found: Sequence[ProgressSample], tps: Sequence[TopicPartition], time: Elapsed, theme: Theme
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
    if len(points) <= canvas.MOST_POINTS:
        return points
    found = canvas.band([point for point in points if not isnan(point[1])], time.length, COLUMNS)
    return list(zip(found.places, found.highest, strict=True))


def _rates(
    found: Sequence[ProgressSample], tps: Sequence[TopicPartition], time: Elapsed
) -> dict[TopicPartition, Points]:
    """NaN where the query did not own the partition, so that its line has a gap."""
    rates: dict[TopicPartition, Points] = {tp: [] for tp in tps}
    for before, one in pairwise(found):
        seconds = max((one.time_ms - before.time_ms) / 1000, 1e-3)
        for tp in tps:
            rates[tp].append((time.at(one.time_ms), one.read.get(tp, nan) / seconds))
    return rates


def _map(
    figure: Any, axes: Any, found: Sequence[ProgressSample], tps: Sequence[TopicPartition], time: Elapsed, theme: Theme
) -> None:
    """A row a partition; each micro-batch lasts until the next."""
    import numpy as np

    every = -(-len(tps) // MOST_ROWS)
    rows = {tp: row for row, tp in enumerate(tps[::every])}
    cells = np.full((len(rows), COLUMNS), np.nan)
    known = [one for one in found if one.lag]
    columns = [canvas.bin_of(time.at(one.time_ms), time.length, COLUMNS) for one in known]
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
