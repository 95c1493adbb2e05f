"""Records that each member committed over time, and how many a second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spark_kafka_group.pictures import canvas, logged_run, themes, time_bins
from spark_kafka_group.pictures.batch_spans import BatchSpan, batch_spans
from spark_kafka_group.pictures.elapsed import Elapsed
from spark_kafka_group.pictures.logged_run import Files, Member
from spark_kafka_group.pictures.themes import Theme
from spark_kafka_group.tools.event_logs import Event

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from spark_kafka_group.pictures.picture import Picture

BINS, STEPS = 60, 300
Points = list[tuple[float, float]]


def records(files: Files, theme: str = "light") -> Figure:
    """Records that each member committed: their sum over time, and records a second.

    The parameters and errors are those of :func:`spark_kafka_group.pictures.owners`. Records are offsets of committed
    ranges; compaction and transactions make them more than the records that were read.
    """
    return records_of(logged_run.read(files).events, themes.named(theme))


def records_of(events: Sequence[Event], theme: Theme) -> Picture:
    """As :func:`records`, of events in order of time; there is one at least."""
    time = logged_run.times(events)
    figure, (totals, rates) = canvas.canvas(theme, logged_run.title(events, time), heights=(3, 2))
    draw(totals, rates, events, time, theme)
    return figure


def draw(totals: Any, rates: Any, events: Sequence[Event], time: Elapsed, theme: Theme) -> None:
    """Draw sums into axes, and rates into those below."""
    shown = _shown(batch_spans(events), logged_run.members(events), time, theme)
    time.show(totals, False)
    time.show(rates)
    canvas.heading(totals, theme, "Records committed since the beginning")
    canvas.heading(rates, theme, "Records committed a second, members on top of each other")
    totals.set_ylabel("records")
    rates.set_ylabel("records/s")
    for axes in (totals, rates):
        canvas.short_numbers(axes.yaxis)
    handles = [_total(totals, points, time, colour) for _, colour, points in shown]
    canvas.from_zero(totals)
    canvas.whole_numbers(totals.yaxis)
    _rates(rates, shown, time)
    canvas.legend(totals, theme, [(handle, name) for handle, (name, _, _) in zip(handles, shown, strict=True)])
    if not shown:
        canvas.nothing(totals, theme, "no batch was committed")


def _shown(
    spans: Sequence[BatchSpan], members: Mapping[Member, str], time: Elapsed, theme: Theme
) -> list[tuple[str, str, Points]]:
    """Names, colours and commits of the members that a picture names, and of all others together."""
    commits: dict[Member, Points] = {}
    for span in spans:
        if span.to_ms is not None:
            commits.setdefault(span.member, []).append((time.at(span.to_ms), float(span.committed)))
    colours = logged_run.colours(members, theme)
    named = list(members)[: canvas.MOST_NAMED]
    shown = [(members[one], colours[one], sorted(commits[one])) for one in named if one in commits]
    others = [member for member in commits if member not in named]
    rest = sorted(point for member in others for point in commits[member])
    return [*shown, (f"{len(others)} more", theme.rest, rest)] if rest else shown


def _total(axes: Any, points: Points, time: Elapsed, colour: str) -> Any:
    if len(points) > time_bins.MOST_POINTS:
        sums = time_bins.sums(points, time.length, STEPS)
        points = [((number + 1) * time.length / STEPS, size) for number, size in enumerate(sums)]
    places, sizes = [0.0], [0.0]
    for place, size in points:
        places.append(place)
        sizes.append(sizes[-1] + size)
    (line,) = axes.plot([*places, time.length], [*sizes, sizes[-1]], color=colour, drawstyle="steps-post", linewidth=2)
    return line


def _rates(axes: Any, shown: Sequence[tuple[str, str, Points]], time: Elapsed) -> None:
    below, places = [0.0] * BINS, [number * time.length / BINS for number in range(BINS + 1)]
    for _, colour, points in shown:
        sums = time_bins.sums(points, time.length, BINS)
        above = [base + size / (time.seconds / BINS) for base, size in zip(below, sums, strict=True)]
        axes.fill_between(
            places, [*below, below[-1]], [*above, above[-1]], step="post", color=colour, linewidth=0, alpha=0.85
        )
        below = above
    axes.set_ylim(0, max(below, default=0) * 1.1 or 1)
