"""How long the micro-batches of a query took, by phase."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spark_kafka_group.pictures import canvas, progress_samples, themes
from spark_kafka_group.pictures.label_text import label
from spark_kafka_group.pictures.progress_samples import Sample
from spark_kafka_group.pictures.themes import Theme

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WHOLE = "triggerExecution"
MOST_BARS = 150
LONGER = 2.5
"""Times the length that nine of ten bars do not exceed: longer ones are cut."""
MOST_NAMED = 4


def durations(progress: Iterable[Mapping[str, Any]], theme: str = "light") -> Figure:
    """How long each micro-batch took, by phase: a bar a batch, of many batches a bar the average of some in a row.

    Phases are those of ``durationMs``; "other" is what the trigger took beside them. The parameters and errors are
    those of :func:`spark_kafka_group.pictures.lag`.
    """
    colours, found = themes.named(theme), progress_samples.samples(progress)
    figure, (axes,) = canvas.canvas(
        colours, progress_samples.title(found, progress_samples.times(found)), (canvas.WHOLE_PX,)
    )
    each = -(-len(found) // MOST_BARS)
    parts = [found[at : at + each] for at in range(0, len(found), each)]
    phases, handles, bottoms = _phases(found), [], [0.0] * len(parts)
    for colour, phase in zip((*colours.members, colours.rest), phases, strict=False):
        heights = [_average(part, phase, phases) for part in parts]
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


def _phases(found: Sequence[Sample]) -> list[str]:
    """The longest phases, and the others as one."""
    totals: dict[str, float] = {}
    for one in found:
        for phase, ms in one.durations_ms.items():
            if phase != WHOLE:
                totals[phase] = totals.get(phase, 0.0) + ms
    return [*sorted(totals, key=lambda phase: -totals[phase])[: canvas.MOST_NAMED - 1], "other"]


def _average(part: Sequence[Sample], phase: str, phases: Sequence[str]) -> float:
    return sum(_of(one.durations_ms, phase, phases) for one in part) / len(part)


def _of(durations_ms: Mapping[str, float], phase: str, phases: Sequence[str]) -> float:
    if phase != "other":
        return durations_ms.get(phase, 0.0)
    whole = durations_ms.get(WHOLE, sum(durations_ms.values()))
    return max(0.0, whole - sum(durations_ms.get(name, 0.0) for name in phases[:-1]))
