"""Records that each member committed over time, and how many a second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import attrgetter
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from spark_kafka_group.pictures import canvas, logged_run
from spark_kafka_group.pictures.batch_timeline import batch_spans
from spark_kafka_group.pictures.canvas import Elapsed
from spark_kafka_group.pictures.logged_run import Files, LoggedRun, Member

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from spark_kafka_group.pictures.picture import Picture

BINS, STEPS = 60, 300
USUAL = 3.0  # times the median time between two commits of a member, up to which it has worked all the time
BY_END = attrgetter("end")


class CommittedBatch(NamedTuple):
    """The places from and to of the time in which a member worked for a commit, and the commit's records."""

    begin: float
    end: float
    records: float


@dataclass(frozen=True)
class Shown:
    """A member that a picture names, or all others together, and the commits in order of time."""

    name: str
    colour: str
    commits: Sequence[CommittedBatch]


def records(files: Files, theme: str = "light") -> Figure:
    """Records that each member committed: their sum over time, and records a second.

    The parameters and errors are those of :func:`spark_kafka_group.pictures.owners`. Records are offsets of committed
    ranges; compaction and transactions make them more than the records that were read. The rate has the records of a
    commit spread over the time since the member's commit before, and after a pause since the plan of its batch.
    """
    return records_of(logged_run.read(files, theme))


def records_of(run: LoggedRun) -> Picture:
    figure, (totals, rates) = canvas.canvas(run.theme, run.title)
    draw(totals, rates, run)
    return figure


def draw(totals: Any, rates: Any, run: LoggedRun) -> None:
    """Draw sums into axes, and rates into those below."""
    theme, time, shown = run.theme, run.time, _shown(run)
    time.show(totals, False)
    time.show(rates)
    canvas.heading(totals, theme, "Records committed since the beginning")
    canvas.heading(rates, theme, "Records committed a second, members on top of each other")
    totals.set_ylabel("records")
    rates.set_ylabel("records/s")
    for axes in (totals, rates):
        canvas.short_numbers(axes.yaxis)
    handles = [_total(totals, one, time) for one in shown]
    canvas.from_zero(totals)
    canvas.whole_numbers(totals.yaxis)
    _rates(rates, shown, time)
    canvas.legend(totals, theme, [(handle, one.name) for handle, one in zip(handles, shown, strict=True)])
    if not shown:
        canvas.nothing(totals, theme, "no batch was committed")


def _shown(run: LoggedRun) -> list[Shown]:
    batches: dict[Member, list[CommittedBatch]] = {}
    for span in batch_spans(run.events):
        if span.to_ms is not None:
            commit = CommittedBatch(run.time.at(span.from_ms), run.time.at(span.to_ms), float(span.committed))
            batches.setdefault(span.member, []).append(commit)
    commits = {member: _since_the_one_before(found) for member, found in batches.items()}
    named = list(run.members)[: canvas.MOST_NAMED]
    shown = [Shown(run.members[one], run.colours[one], commits[one]) for one in named if one in commits]
    others = [member for member in commits if member not in named]
    rest = sorted((commit for member in others for commit in commits[member]), key=BY_END)
    return [*shown, Shown(f"{len(others)} more", run.theme.rest, rest)] if rest else shown


def _since_the_one_before(planned: Sequence[CommittedBatch]) -> list[CommittedBatch]:
    """Commits of a member that begin with the commit before, and after a longer pause than usual with their own plan. A
    commit is a moment, and its records are those of the time since the commit before. As moments, steady commits would
    fall into bins by two, by one, or not at all."""
    ordered = sorted(planned, key=BY_END)
    gaps = [one.end - before.end for before, one in pairwise(ordered)]
    usual = USUAL * median(gaps or [0.0])
    continued = [
        one._replace(begin=before.end) if gap <= usual else one
        for (before, one), gap in zip(pairwise(ordered), gaps, strict=True)
    ]
    return [ordered[0], *continued]


def _total(axes: Any, shown: Shown, time: Elapsed) -> Any:
    points = [(commit.end, commit.records) for commit in shown.commits]
    if len(points) > canvas.MOST_POINTS:
        sums = canvas.sums(points, time.length, STEPS)
        points = [((number + 1) * time.length / STEPS, size) for number, size in enumerate(sums)]
    places = [0.0, *(place for place, _ in points), time.length]
    sizes = [*accumulate((size for _, size in points), initial=0.0)]
    (line,) = axes.plot(places, [*sizes, sizes[-1]], color=shown.colour, drawstyle="steps-post", linewidth=2)
    return line


def _rates(axes: Any, shown: Sequence[Shown], time: Elapsed) -> None:
    below, places = [0.0] * BINS, [number * time.length / BINS for number in range(BINS + 1)]
    for one in shown:
        sums = canvas.spread(one.commits, time.length, BINS)
        above = [base + size / (time.seconds / BINS) for base, size in zip(below, sums, strict=True)]
        axes.fill_between(
            places, [*below, below[-1]], [*above, above[-1]], step="post", color=one.colour, linewidth=0, alpha=0.85
        )
        below = above
    axes.set_ylim(0, max(below, default=0) * 1.1 or 1)
