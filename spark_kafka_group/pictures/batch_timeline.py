"""Micro-batches from plan to commit, and what happened to the group meanwhile."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from spark_kafka_group.pictures import canvas, logged_run
from spark_kafka_group.pictures.canvas import Elapsed, Theme
from spark_kafka_group.pictures.logged_run import Files, LoggedRun, Member, absences
from spark_kafka_group.pictures.owned_partitions import generations
from spark_kafka_group.tools.event_logs import Event

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from spark_kafka_group.pictures.picture import Picture


@dataclass(frozen=True)
class BatchSpan:
    """A plan of a micro-batch, and its commit."""

    member: Member
    from_ms: float  # when it was planned, ms since the epoch
    to_ms: float | None = None  # when it was committed; None where no event says so
    committed: int = 0  # records: offsets of the ranges whose end was committed


def batch_spans(events: Iterable[Event]) -> tuple[BatchSpan, ...]:
    """Batches in order of their plans; `events` are in order of time."""
    found: list[BatchSpan] = []
    open_plans: dict[tuple[Member, int | None], tuple[int, Event]] = {}
    for event in events:
        member = (event.group, event.member)
        if event.kind == "planned":
            open_plans[member, event.batch] = (len(found), event)
            found.append(BatchSpan(member, event.time_ms))
        elif event.kind == "committed" and (member, event.batch) in open_plans:
            place, plan = open_plans.pop((member, event.batch))
            committed = sum(r.size for r in plan.ranges if event.offsets.get(r.tp) == r.end)
            found[place] = replace(found[place], to_ms=max(event.time_ms, plan.time_ms), committed=committed)
    return tuple(found)


MOST_LANES = 16
PIXELS = 700.0
MOST_EDGED = 100  # batches of a member whose edges can be seen
MOST_MARKS = 400
LOGARITHMIC_FROM = 30.0  # the ratio of the longest batch to the shortest from which the axis is logarithmic


def batches(files: Files, theme: str = "light") -> Figure:
    """Micro-batches of each member from plan to commit, and their durations; rebalances, replays and lost members.

    The parameters and errors are those of :func:`spark_kafka_group.pictures.owners`.
    """
    return batches_of(logged_run.read(files, theme))


def batches_of(run: LoggedRun) -> Picture:
    figure, (lanes, below) = canvas.canvas(run.theme, run.title, [height_px(run), canvas.LOW_PX])
    draw(lanes, below, run)
    return figure


def height_px(run: LoggedRun) -> float:
    """Of the first axes that :func:`draw` draws into."""
    return canvas.rows_px(min(len(run.members), MOST_LANES), canvas.TALL_PX)


def draw(lanes: Any, below: Any, run: LoggedRun, named: bool = True) -> None:
    """Draw batches into axes, and their durations into the axes below; `named` says whether the axis of time is."""
    spans = batch_spans(run.events)
    run.time.show(lanes, False)
    run.time.show(below, named)
    _lanes(lanes, run, spans)
    _durations(below, run, spans)


def _lanes(axes: Any, run: LoggedRun, spans: Sequence[BatchSpan]) -> None:
    shown = list(run.members)[:MOST_LANES]
    lanes = {member: lane for lane, member in enumerate(shown)}
    ends = _ends(run.events)
    thick = canvas.thickness(len(shown), height_px(run), 0.6)
    for member, lane in lanes.items():
        own = [span for span in spans if span.member == member]
        place = (lane - thick / 2, thick)
        _bars(axes, place, [span for span in own if span.to_ms is not None], run, run.colours[member])
        _hollow(axes, place, _unfinished(own, ends[member]), run)
    marks = [_rebalances(axes, run), *(_marks(axes, mark, lanes, run) for mark in MARKS)]
    axes.set_yticks(range(len(shown)), [run.members[member] for member in shown])
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.set_ylabel("member")
    some = f" ({len(shown)} of {len(run.members)} members, with most events)" if len(shown) < len(run.members) else ""
    canvas.heading(axes, run.theme, f"Micro-batches, from plan to commit{some}")
    canvas.legend(axes, run.theme, _kinds_of_bars(spans, run.theme) + [mark for mark in marks if mark is not None])


def _kinds_of_bars(spans: Sequence[BatchSpan], theme: Theme) -> list[tuple[Any, str]]:
    names = [(canvas.patch(color=theme.rest), "committed")]
    if any(span.to_ms is None for span in spans):
        names.append((canvas.patch(facecolor="none", edgecolor=theme.alarm), "no commit event"))
    return names


def _bars(axes: Any, lane: tuple[float, float], spans: Sequence[BatchSpan], run: LoggedRun, colour: str) -> None:
    """Bars of batches, in a lane from and thick; those that a pixel could not separate are one."""
    places = [(run.time.at(span.from_ms), run.time.at(span.to_ms or span.from_ms)) for span in spans]
    edged, least = len(places) <= MOST_EDGED, run.time.length / PIXELS
    if not edged:
        places = canvas.merged(places, least)
    style = {"edgecolor": run.theme.panel, "linewidth": 0.8} if edged else {"edgecolor": "none", "linewidth": 0.0}
    axes.broken_barh([(begin, max(end - begin, least)) for begin, end in places], lane, facecolor=colour, **style)


def _hollow(axes: Any, lane: tuple[float, float], places: Sequence[tuple[float, float]], run: LoggedRun) -> None:
    least = run.time.length / PIXELS
    spans = canvas.merged([(run.time.at(begin), run.time.at(end)) for begin, end in places], least)
    if spans:
        axes.broken_barh(
            [(begin, max(end - begin, 3 * least)) for begin, end in spans], lane,
            facecolor="none", edgecolor=run.theme.alarm, linewidth=1.2,
        )  # fmt: skip


def _ends(events: Sequence[Event]) -> dict[Member, list[float]]:
    """When processes of each member ended, as far as events tell, and its last event."""
    ends = {(event.group, event.member): [event.time_ms] for event in events}
    for event in events:
        if event.kind == "stopped":
            ends[event.group, event.member].append(event.time_ms)
    for absence in absences(events):
        ends[absence.member].append(absence.from_ms)
    return {member: sorted(found) for member, found in ends.items()}


def _unfinished(own: Sequence[BatchSpan], ends: Sequence[float]) -> list[tuple[float, float]]:
    """Batches without a commit, until the next plan of their member, or the end of its process."""
    next_ms = [span.from_ms for span in own[1:]] + [ends[-1]] if own else []
    return [
        (span.from_ms, min(next_plan, ends[bisect_left(ends, span.from_ms)]))
        for span, next_plan in zip(own, next_ms, strict=True)
        if span.to_ms is None
    ]


def _rebalances(axes: Any, run: LoggedRun) -> tuple[Any, str] | None:
    places = [run.time.at(one.time_ms) for one in generations(run.events) if one.changed]
    if not places:
        return None
    return canvas.lines_at(axes, _thinned(places, run.time), run.theme, zorder=0.9), f"new owners ({len(places)})"


Moments = Iterator[tuple[Member, float]]  # members, and when


def _replays(events: Sequence[Event]) -> Moments:
    return (((event.group, event.member), event.time_ms) for event in events if event.replay)


def _losses(events: Sequence[Event]) -> Moments:
    return (((event.group, event.member), event.time_ms) for event in events if event.kind == "lost")


def _deaths(events: Sequence[Event]) -> Moments:
    return ((absence.member, absence.from_ms) for absence in absences(events))


@dataclass(frozen=True)
class Mark:
    """A kind of moment in a member's lane."""

    name: str
    shape: str
    alarming: bool
    moments: Callable[[Sequence[Event]], Moments]


MARKS = (Mark("replay", "^", False, _replays), Mark("lost partitions", "v", True, _losses),
         Mark("ended without stop", "X", True, _deaths))  # fmt: skip


def _marks(axes: Any, mark: Mark, lanes: Mapping[Member, int], run: LoggedRun) -> tuple[Any, str] | None:
    places = [(run.time.at(ms), lanes[member]) for member, ms in mark.moments(run.events) if member in lanes]
    if not places:
        return None
    style = {
        "marker": mark.shape, "linestyle": "none", "markersize": 8, "markeredgewidth": 0.8,
        "color": run.theme.alarm if mark.alarming else run.theme.text, "markeredgecolor": run.theme.background,
    }  # fmt: skip
    some = places[:: -(-len(places) // MOST_MARKS)]
    axes.plot([place for place, _ in some], [lane for _, lane in some], zorder=4, clip_on=False, **style)
    return canvas.stroke(**style), f"{mark.name} ({len(places)})"


def _thinned(places: Sequence[float], time: Elapsed) -> list[float]:
    """The first of the places in each two pixels."""
    width = 2 * time.length / PIXELS
    return list({int(place / width): place for place in reversed(places)}.values())


def _durations(axes: Any, run: LoggedRun, spans: Sequence[BatchSpan]) -> None:
    canvas.heading(axes, run.theme, "Duration of each micro-batch")
    axes.set_ylabel("plan to commit (s)")
    at = run.time.at
    points = [(span.member, at(ms), (ms - span.from_ms) / 1000) for span in spans if (ms := span.to_ms) is not None]
    if not points:
        canvas.nothing(axes, run.theme, "no batch was committed")
        return
    _scale(axes, [value for _, _, value in points])
    if len(points) <= canvas.MOST_POINTS:
        for member in dict.fromkeys(member for member, _, _ in points):
            own = [(place, value) for owner, place, value in points if owner == member]
            axes.plot(*zip(*own, strict=True), "o", markersize=4, color=run.colours[member])
        return
    line, area = canvas.draw_band(axes, [(place, value) for _, place, value in points], run.time.length, run.theme)
    canvas.legend(axes, run.theme, [(line, "median"), (area, "lowest to highest")])


def _scale(axes: Any, seconds: Sequence[float]) -> None:
    if max(seconds) > LOGARITHMIC_FROM * max(min(seconds), 1e-3) and min(seconds) > 0:
        canvas.logarithmic(axes)
    else:
        axes.set_ylim(0, max(seconds) * 1.1 or 1)
        canvas.brief_numbers(axes.yaxis)
