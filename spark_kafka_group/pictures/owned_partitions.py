"""Which member owned which partition when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from spark_kafka_group.pictures import canvas, logged_run
from spark_kafka_group.pictures.canvas import label, nth
from spark_kafka_group.pictures.logged_run import Absence, Files, LoggedRun, Member, absences
from spark_kafka_group.tools.event_logs import Event
from spark_kafka_group.values.offsets import TopicPartition

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from spark_kafka_group.pictures.picture import Picture


Partition = tuple[str, TopicPartition]  # a partition, and the group that it belongs to


@dataclass(frozen=True)
class OwnedSpan:
    """A member owned a partition from one time to another, ms since the epoch."""

    member: Member
    tp: TopicPartition
    from_ms: float
    to_ms: float


@dataclass(frozen=True)
class DrawnGeneration:
    """The first event of a generation, and whether partitions changed hands in it."""

    time_ms: float
    changed: bool = False


@dataclass
class _Owning:
    since: dict[TopicPartition, float] = field(default_factory=dict)
    generation: int = -1
    last_ms: float = 0.0


@dataclass
class _Group:
    members: dict[str, _Owning] = field(default_factory=dict)
    spans: list[OwnedSpan] = field(default_factory=list)


def owned_spans(events: Sequence[Event]) -> tuple[OwnedSpan, ...]:
    """Spans of all partitions; `events` are in order of time.

    A span ends where its member gives the partition back, stops, or dies. One that is open at the end lasts until the
    last event of the run.
    """
    groups: dict[str, _Group] = {}
    for event in events:
        _note(groups.setdefault(event.group, _Group()), event)
    end_ms = max((event.time_ms for event in events), default=0.0)
    for name, group in groups.items():
        for member, owning in group.members.items():
            _close(group, name, member, tuple(owning.since), end_ms)
    gone: defaultdict[Member, list[Absence]] = defaultdict(list)
    for absence in absences(events):
        gone[absence.member].append(absence)
    whole = (span for group in groups.values() for span in group.spans)
    return tuple(part for span in whole for part in _without(span, gone[span.member]))


def generations(events: Iterable[Event]) -> tuple[DrawnGeneration, ...]:
    """Generations in order of time, those of groups only."""
    by_number: dict[tuple[str, int], DrawnGeneration] = {}
    owned: dict[Member, frozenset[TopicPartition]] = {}
    for event in events:
        if event.kind != "assigned" or event.generation < 0:
            continue
        member, key = (event.group, event.member), (event.group, event.generation)
        seen = by_number.setdefault(key, DrawnGeneration(event.time_ms))
        if owned.get(member) != event.partitions:
            by_number[key] = replace(seen, changed=True)
        owned[member] = event.partitions
    return tuple(by_number.values())


def _note(group: _Group, event: Event) -> None:
    own = group.members.setdefault(event.member, _Owning())
    match event.kind:
        case "assigned":
            _close(group, event.group, event.member, own.since.keys() - event.partitions, event.time_ms)
            gained = event.partitions - own.since.keys()
            if gained:
                _end_those_before(group, event, gained)
            own.since.update(dict.fromkeys(gained, event.time_ms))
            own.generation = event.generation
        case "revoked" | "lost":
            _close(group, event.group, event.member, event.partitions, event.time_ms)
        case "stopped":
            _close(group, event.group, event.member, tuple(own.since), event.time_ms)
    own.last_ms = event.time_ms


def _end_those_before(group: _Group, event: Event, gained: frozenset[TopicPartition]) -> None:
    """Spans of members that were dead when others got their partitions in a later generation."""
    for name, other in group.members.items():
        if name != event.member and other.generation < event.generation:
            _close(group, event.group, name, gained & other.since.keys(), other.last_ms)


def _close(group: _Group, name: str, member: str, tps: Iterable[TopicPartition], time_ms: float) -> None:
    since = group.members[member].since
    for tp in tps:
        from_ms = since.pop(tp, None)
        if from_ms is not None:
            group.spans.append(OwnedSpan((name, member), tp, from_ms, max(from_ms, time_ms)))


def _without(span: OwnedSpan, gone: Iterable[Absence]) -> Iterator[OwnedSpan]:
    """Parts of a span in which its member was there; `gone` is in order of time."""
    for absence in gone:
        to_ms = span.to_ms if absence.to_ms is None else absence.to_ms
        if absence.from_ms >= span.to_ms or to_ms <= span.from_ms:
            continue
        if absence.from_ms > span.from_ms:
            yield replace(span, to_ms=absence.from_ms)
        if to_ms >= span.to_ms:
            return
        span = replace(span, from_ms=to_ms)
    yield span


MOST_LABELS = 20
LONGEST_OF_A_ROW = 18
FEW = 6  # rows beside which a name in one line would have no room


def name_rows(axes: Any, rows: Sequence[Partition], every: int = 1) -> None:
    """Name rows from the top, of which `every` is how many partitions each stands for."""
    topics = sorted({(group, tp.topic) for group, tp in rows})
    if len(topics) == 1:
        _number(axes, rows, topics[0][1], every)
    elif len(rows) <= MOST_LABELS:
        axes.set_yticks(range(len(rows)), [f"{label(tp.topic, LONGEST_OF_A_ROW)}-{tp.partition}" for _, tp in rows])
        axes.set_ylabel("partition")
    else:
        _name_topics(axes, rows, len({topic for _, topic in topics}), every)
    axes.set_ylim(len(rows) - 0.5, -0.5)


def _number(axes: Any, rows: Sequence[Partition], topic: str, every: int) -> None:
    axes.set_ylabel(
        f"{nth(every)}partition of {label(topic)}"
        if len(rows) > FEW
        else f"partition\nof {label(topic, LONGEST_OF_A_ROW)}"
    )
    step = -(-len(rows) // MOST_LABELS) if len(rows) > MOST_LABELS else 1
    step = next(size for size in (1, 2, 5, 10, 20, 50, 100, 1_000, len(rows)) if size >= step)
    places = range(0, len(rows), step)
    axes.set_yticks(places, [str(rows[place][1].partition) for place in places])


def _name_topics(axes: Any, rows: Sequence[Partition], topics: int, every: int) -> None:
    """Name each topic at its first row, as far as there is room."""
    firsts = {(group, tp.topic): row for row, (group, tp) in reversed([*enumerate(rows)])}
    apart, places = len(rows) / MOST_LABELS, list[tuple[int, str]]()
    for (_, topic), row in sorted(firsts.items(), key=lambda found: found[1]):
        if not places or row - places[-1][0] >= apart:
            places.append((row, label(topic, LONGEST_OF_A_ROW)))
    axes.set_yticks([row for row, _ in places], [name for _, name in places])
    axes.set_ylabel(f"{nth(every)}partition of {canvas.short(topics)} topics")


MOST_BARS, MOST_BAR_ROWS = 2_000, 60  # with more bars or rows than these, the picture is made of cells
MOST_ROWS, COLUMNS = 600, 1_200  # of cells
MOST_LINES = 60  # generations that are drawn
OTHER_NAMES = 2  # in the legend, beside members


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
    return owners_of(logged_run.read(files, theme))


def owners_of(run: LoggedRun) -> Picture:
    figure, (axes,) = canvas.canvas(run.theme, run.title, [height_px(run)])
    draw(axes, run)
    return figure


def height_px(run: LoggedRun) -> float:
    """Of the axes that :func:`draw` draws into."""
    members = min(len(run.members), canvas.MOST_NAMED + 1)
    return canvas.rows_px(len(_partitions(owned_spans(run.events))), canvas.WHOLE_PX, names=members + OTHER_NAMES)


def _partitions(spans: Sequence[OwnedSpan]) -> list[Partition]:
    return sorted({(span.member[0], span.tp) for span in spans})


def draw(axes: Any, run: LoggedRun, named: bool = True) -> None:
    """Draw it into axes; `named` says whether the axis of time is."""
    spans = owned_spans(run.events)
    partitions = _partitions(spans)
    every = -(-len(partitions) // MOST_ROWS) or 1
    rows = partitions[::every]
    hatched = canvas.hatched(run.theme)
    axes.grid(visible=False)
    run.time.show(axes, named)
    if not rows:
        canvas.nothing(axes, run.theme, "no event assigns a partition")
        return
    if len(rows) <= MOST_BAR_ROWS and len(spans) <= MOST_BARS:
        height = canvas.thickness(len(rows), height_px(run), 0.8)
        axes.barh(range(len(rows)), run.time.length, height=height, zorder=0.5, **hatched)
        _bars(axes, run, spans, rows, height)
    else:
        axes.patch.set(**hatched)
        _cells(axes, run, spans, rows)
    name_rows(axes, rows, every)
    lines = _generations(axes, run)
    canvas.heading(axes, run.theme, "Who owned which partition")
    canvas.legend(axes, run.theme, [*_names(run), *lines, (canvas.patch(**hatched), "no owner known")])


def _bars(axes: Any, run: LoggedRun, spans: Sequence[OwnedSpan], rows: Sequence[Partition], height: float) -> None:
    places = {partition: row for row, partition in enumerate(rows)}
    at = run.time.at
    for member, colour in run.colours.items():
        own = [span for span in spans if span.member == member]
        lengths = [at(span.to_ms) - at(span.from_ms) for span in own]
        axes.barh([places[member[0], span.tp] for span in own], lengths, left=[at(span.from_ms) for span in own],
                  height=height, color=colour, label=member[1])  # fmt: skip


def _cells(axes: Any, run: LoggedRun, spans: Sequence[OwnedSpan], rows: Sequence[Partition]) -> None:
    """A cell for each row and short time; one that is owned in part has the colour of the last owner."""
    import numpy as np

    places = {partition: row for row, partition in enumerate(rows)}
    rgba = {member: [*bytes.fromhex(colour[1:]), 255] for member, colour in run.colours.items()}
    cells = np.zeros((len(rows), COLUMNS, 4), dtype=np.uint8)
    columns = COLUMNS / run.time.length
    for span in spans:
        row = places.get((span.member[0], span.tp))
        if row is not None:
            first, last = round(run.time.at(span.from_ms) * columns), round(run.time.at(span.to_ms) * columns)
            cells[row, first : max(last, first + 1)] = rgba[span.member]
    extent = (0, run.time.length, len(rows) - 0.5, -0.5)
    axes.imshow(cells, extent=extent, aspect="auto", interpolation="nearest", zorder=1.5)


def _generations(axes: Any, run: LoggedRun) -> list[tuple[Any, str]]:
    """Lines of all generations; of many, those in which partitions changed hands, as far as they can be seen."""
    found, what = generations(run.events), "generation"
    if len(found) > MOST_LINES:
        found, what = tuple(one for one in found if one.changed), "new owners"
    if not found or len(found) > MOST_LINES:
        return []
    places = [run.time.at(one.time_ms) for one in found]
    return [(canvas.lines_at(axes, places, run.theme, zorder=3), what)]


def _names(run: LoggedRun) -> list[tuple[Any, str]]:
    named = [(canvas.patch(color=run.colours[member]), name) for member, name in run.members.items()]
    named = named[: canvas.MOST_NAMED]
    more = len(run.members) - len(named)
    return [*named, (canvas.patch(color="none"), f"{more} more, same colours")] if more else named
