"""Which member owned which partition when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spark_kafka_group.pictures import canvas, logged_run, themes
from spark_kafka_group.pictures.elapsed import Elapsed
from spark_kafka_group.pictures.logged_run import Files, Member
from spark_kafka_group.pictures.owned_spans import OwnedSpan, Partition, generations, owned_spans
from spark_kafka_group.pictures.partition_rows import name_rows
from spark_kafka_group.pictures.themes import Theme
from spark_kafka_group.tools.event_logs import Event

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from spark_kafka_group.pictures.picture import Picture

MOST_BARS, MOST_BAR_ROWS = 2_000, 60
"""With more bars or rows than these, the picture is made of cells."""
MOST_ROWS, COLUMNS = 600, 1_200
"""Of cells."""
MOST_LINES = 60
"""Generations that are drawn."""
OTHER_NAMES = 2
"""In the legend, beside members."""


def owners(files: Files, theme: str = "light") -> Figure:
    """Which member owned which partition when: a row a partition, a colour a member.

    Hatched is the time in which no member with a file owned the partition. Thin lines are generations.

    Parameters
    ----------
    files
        As option ``eventLog`` writes them, one of each query of the group.
    theme
        ``"light"`` or ``"dark"``.

    Raises
    ------
    ToolError
        When a file cannot be read, or there is no event.
    ImportError
        When matplotlib is not installed.
    """
    return owners_of(logged_run.read(files).events, themes.named(theme))


def owners_of(events: Sequence[Event], theme: Theme) -> Picture:
    """As :func:`owners`, of events in order of time; there is one at least."""
    time = logged_run.times(events)
    figure, (axes,) = canvas.canvas(theme, logged_run.title(events, time), [height_px(events)])
    draw(axes, events, time, theme)
    return figure


def height_px(events: Sequence[Event]) -> float:
    """Of the axes that :func:`draw` draws into."""
    members = min(len(logged_run.members(events)), canvas.MOST_NAMED + 1)
    return canvas.rows_px(len(_partitions(owned_spans(events))), canvas.WHOLE_PX, names=members + OTHER_NAMES)


def _partitions(spans: Sequence[OwnedSpan]) -> list[Partition]:
    return sorted({(span.member[0], span.tp) for span in spans})


def draw(axes: Any, events: Sequence[Event], time: Elapsed, theme: Theme, named: bool = True) -> None:
    """Draw it into axes; `named` says whether the axis of time is."""
    members = logged_run.members(events)
    colours = logged_run.colours(members, theme)
    spans = owned_spans(events)
    partitions = _partitions(spans)
    every = -(-len(partitions) // MOST_ROWS) or 1
    rows = partitions[::every]
    axes.grid(visible=False)
    time.show(axes, named)
    if not rows:
        canvas.nothing(axes, theme, "no event assigns a partition")
        return
    if len(rows) <= MOST_BAR_ROWS and len(spans) <= MOST_BARS:
        height = canvas.thickness(len(rows), height_px(events), 0.8)
        axes.barh(range(len(rows)), time.length, height=height, zorder=0.5, **canvas.hatched(theme))
        _bars(axes, spans, rows, height, time, colours)
    else:
        axes.patch.set(**canvas.hatched(theme))
        _cells(axes, spans, rows, time, colours)
    name_rows(axes, rows, every)
    lines = _generations(axes, events, time, theme)
    canvas.heading(axes, theme, "Who owned which partition")
    canvas.legend(
        axes, theme, [*_names(members, colours), *lines, (canvas.patch(**canvas.hatched(theme)), "no owner known")]
    )


def _bars(
    axes: Any,
    spans: Sequence[OwnedSpan],
    rows: Sequence[Partition],
    height: float,
    time: Elapsed,
    colours: Mapping[Member, str],
) -> None:
    places = {partition: row for row, partition in enumerate(rows)}
    for member, colour in colours.items():
        own = [span for span in spans if span.member == member]
        axes.barh(
            [places[member[0], span.tp] for span in own],
            [time.at(span.to_ms) - time.at(span.from_ms) for span in own],
            left=[time.at(span.from_ms) for span in own],
            height=height,
            color=colour,
            label=member[1],
        )


def _cells(
    axes: Any, spans: Sequence[OwnedSpan], rows: Sequence[Partition], time: Elapsed, colours: Mapping[Member, str]
) -> None:
    """A cell for each row and short time; one that is owned in part has the colour of the last owner."""
    import numpy as np

    places = {partition: row for row, partition in enumerate(rows)}
    rgba = {member: [int(colour[at : at + 2], 16) for at in (1, 3, 5)] + [255] for member, colour in colours.items()}
    cells = np.zeros((len(rows), COLUMNS, 4), dtype=np.uint8)
    columns = COLUMNS / time.length
    for span in spans:
        row = places.get((span.member[0], span.tp))
        if row is not None:
            first, last = round(time.at(span.from_ms) * columns), round(time.at(span.to_ms) * columns)
            cells[row, first : max(last, first + 1)] = rgba[span.member]
    extent = (0, time.length, len(rows) - 0.5, -0.5)
    axes.imshow(cells, extent=extent, aspect="auto", interpolation="nearest", zorder=1.5)


def _generations(axes: Any, events: Sequence[Event], time: Elapsed, theme: Theme) -> list[tuple[Any, str]]:
    """Lines of all generations; of many, those in which partitions changed hands, as far as they can be seen."""
    found, what = generations(events), "generation"
    if len(found) > MOST_LINES:
        found, what = tuple(one for one in found if one.changed), "new owners"
    if not found or len(found) > MOST_LINES:
        return []
    style = {"linewidth": 0.7, "linestyle": (0, (3, 2))}
    places = [time.at(one.time_ms) for one in found]
    axes.vlines(places, 0, 1, transform=axes.get_xaxis_transform(), color=theme.text, zorder=3, **style)
    return [(canvas.stroke(color=theme.text, **style), what)]


def _names(members: Mapping[Member, str], colours: Mapping[Member, str]) -> list[tuple[Any, str]]:
    named = [(canvas.patch(color=colours[member]), name) for member, name in members.items()][: canvas.MOST_NAMED]
    more = len(members) - len(named)
    return [*named, (canvas.patch(color="none"), f"{more} more, same colours")] if more else named
