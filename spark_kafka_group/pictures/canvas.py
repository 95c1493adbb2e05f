"""Axes in the colours of a theme: places of times, bins of values, and names that fit. The one user of matplotlib.

People with any kind of colour vision can tell the colours apart (after Okabe and Ito).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, takewhile
from statistics import median
from typing import TYPE_CHECKING, Any

from spark_kafka_group.text.foreign_text import printable
from spark_kafka_group.tools.formatting import moment

if TYPE_CHECKING:
    from spark_kafka_group.pictures.picture import Picture


@dataclass(frozen=True)
class Theme:
    """Colours for one background, as ``#rrggbb``."""

    background: str
    panel: str
    text: str
    grid: str
    faint: str  # the colour of lines that must not hide others
    hatch: str
    rest: str  # the colour of all members or partitions without a colour of their own
    alarm: str
    members: tuple[str, ...]
    heat: str  # a colour map of matplotlib's, whose low end is near the background


LIGHT = Theme(
    background="#ffffff", panel="#f7f7f7", text="#222222", grid="#dddddd", faint="#9a9a9a", hatch="#c4c4c4",
    rest="#8a8a8a", alarm="#c00000", heat="Blues",
    members=("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7a5c00"),
)  # fmt: skip
DARK = Theme(
    background="#16181d", panel="#20232a", text="#e6e6e6", grid="#3a3f4a", faint="#8b919c", hatch="#4f5664",
    rest="#a0a0a0", alarm="#ff6b6b", heat="inferno",
    members=("#56b4e9", "#e69f00", "#1fc79a", "#cc79a7", "#f0e442", "#ff7f3f", "#9aa5ff"),
)  # fmt: skip
THEMES = {"light": LIGHT, "dark": DARK}


def theme_named(theme: str) -> Theme:
    """A theme by its name. Raises ValueError when there is none of this name."""
    if theme not in THEMES:
        raise ValueError(f"theme ({theme!r}) must be one of {', '.join(THEMES)}")
    return THEMES[theme]


LONGEST = 28
LONGEST_OF_SEVERAL = 22
LONGEST_TITLE = 90  # characters of a line of the title that are not wider than a picture
SHORTEST_ID = 8
MOST_NAMES = 3


def label(name: str, longest: int = LONGEST) -> str:
    """`name` in one line, cut in the middle, with nothing that matplotlib takes for mathematics."""
    shown = printable(name[: 4 * longest])
    if len(shown) > longest or len(name) > 4 * longest:
        half = (longest - 1) // 2
        shown = f"{shown[:half]}…{printable(name[-half:])[-half:]}"
    shown = shown.replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown  # or a legend leaves it out


def ids(names: Collection[str], longest: int = LONGEST) -> Mapping[str, str]:
    """Labels of ids: their first characters, as many as tell them apart, and eight at least."""
    ordered = sorted(set(names))
    common = max((_alike(a, b) for a, b in pairwise(ordered)), default=0)
    length = max(SHORTEST_ID, common + 1)
    return {name: label(name[:length] if _is_id(name) else name, longest) for name in ordered}


def several(what: str, names: Iterable[str]) -> str:
    """``group billing``, or ``groups a, b, c and 4 more``."""
    ordered = sorted(set(names))
    if len(ordered) == 1:
        return f"{what} {label(ordered[0])}"
    more = f" and {len(ordered) - MOST_NAMES} more" if len(ordered) > MOST_NAMES else ""
    return f"{what}s {', '.join(label(name, LONGEST_OF_SEVERAL) for name in ordered[:MOST_NAMES])}{more}"


def title(what: str, names: Iterable[str], when: str) -> str:
    """``group billing: 2026-01-01 …``; on two lines if it would be wider than a picture."""
    line = f"{several(what, names)}: {when}"
    return line if len(line) <= LONGEST_TITLE else f"{several(what, names)}\n{when}"


def nth(every: int) -> str:
    """Words before "partition" where a picture shows only some."""
    if every == 1:
        return ""
    ending = "th" if every % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(every % 10, "th")
    return f"every {every}{ending} "


def _alike(a: str, b: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


def _is_id(name: str) -> bool:
    """Whether it is a query's id, as this package makes them."""
    return len(name) == 32 and set(name) <= set("0123456789abcdef")


WIDTH_PX, DPI = 900, 100
TITLE_PX, AROUND_PX = 70, 45
"""Of a figure: for its title and the name of its axis of time, and for each of its axes, for heading and space."""
TALL_PX, LOW_PX, WHOLE_PX = 265, 175, 485  # of axes: of two, and of those that are alone
ROW_PX, BAR_PX = 50, 40  # of axes with a row for each partition or member: at most these, the bar of a row included
LEAST_PX, NAME_PX = 130, 18  # of axes with few rows: the room for the axes' name, and for each line of the legend
TITLE_SIZE, TEXT_SIZE, SMALL_SIZE = 12, 10, 9
MOST_NAMED = 7  # members, partitions or phases that a picture names; it adds the others up
NEEDED = "pictures need matplotlib, which the extra 'notebook' has: pip install matplotlib"


def canvas(theme: Theme, title: str, heights_px: Sequence[float] = (TALL_PX, LOW_PX)) -> tuple[Picture, list[Any]]:
    """A figure with axes one below the other. Raises ImportError with advice, when matplotlib is not installed."""
    try:
        from matplotlib.layout_engine import ConstrainedLayoutEngine

        from spark_kafka_group.pictures.picture import Picture
    except ImportError as error:
        raise ImportError(NEEDED) from error
    height_px = TITLE_PX + sum(AROUND_PX + axes_px for axes_px in heights_px)
    figure = Picture(
        figsize=(WIDTH_PX / DPI, height_px / DPI), dpi=DPI, layout=ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.08)
    )
    figure.set_facecolor(theme.background)
    figure.suptitle(title, color=theme.text, fontsize=TITLE_SIZE)
    grid = figure.add_gridspec(len(heights_px), 1, height_ratios=list(heights_px))
    axes = [figure.add_subplot(grid[row]) for row in range(len(heights_px))]
    for one in axes:
        dress(one, theme)
    return figure, axes


def rows_px(rows: int, most_px: float, names: int = 0) -> float:
    """The height of axes with so many rows, and so many lines in the legend."""
    return min(most_px, max(rows * ROW_PX, names * NAME_PX, LEAST_PX))


def thickness(rows: int, axes_px: float, share: float) -> float:
    """Of a bar, in rows: this share of its row, or less where rows are high."""
    return min(share, BAR_PX * rows / axes_px)


def dress(axes: Any, theme: Theme) -> None:
    """Give axes the colours of a theme."""
    axes.set_facecolor(theme.panel)
    axes.tick_params(which="both", colors=theme.text, labelsize=SMALL_SIZE)
    axes.grid(color=theme.grid, linewidth=0.6)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_color(theme.faint)
        spine.set_visible(side in ("left", "bottom"))
    for named in (axes.xaxis.label, axes.yaxis.label):
        named.set_color(theme.text)
        named.set_fontsize(TEXT_SIZE)


def heading(axes: Any, theme: Theme, text: str) -> None:
    """A line above axes, at their left."""
    axes.set_title(text, loc="left", color=theme.text, fontsize=TEXT_SIZE)


def legend(axes: Any, theme: Theme, handles: Sequence[tuple[Any, str]]) -> None:
    """The names of lines and areas, right of the axes."""
    if handles:
        axes.legend(
            [handle for handle, _ in handles], [text for _, text in handles], loc="upper left",
            bbox_to_anchor=(1.0, 1.0), borderaxespad=0.3, frameon=False, fontsize=SMALL_SIZE, labelcolor=theme.text,
            handlelength=1.4, handletextpad=0.6,
        )  # fmt: skip


def hatched(theme: Theme) -> dict[str, Any]:
    """How areas look in which a partition has no owner."""
    return {"facecolor": theme.panel, "edgecolor": theme.hatch, "hatch": "////", "linewidth": 0.0}


def patch(**style: Any) -> Any:
    """A small area for a legend."""
    from matplotlib.patches import Patch

    return Patch(**style)


def stroke(**style: Any) -> Any:
    """A small line for a legend."""
    from matplotlib.lines import Line2D

    return Line2D([], [], **style)


def lines_at(axes: Any, places: Sequence[float], theme: Theme, zorder: float) -> Any:
    """Draw thin lines over the whole height; returns a line for the legend."""
    style = {"color": theme.text, "linewidth": 0.7, "linestyle": (0, (3, 2))}
    axes.vlines(places, 0, 1, transform=axes.get_xaxis_transform(), zorder=zorder, **style)
    return stroke(**style)


def draw_band(axes: Any, points: Iterable[tuple[float, float]], length: float, theme: Theme) -> tuple[Any, Any]:
    """Draw the median over time as a line, and lowest to highest value as an area; returns both, for the legend."""
    found, colour = band(points, length), theme.members[0]
    area = axes.fill_between(found.places, found.lowest, found.highest, color=colour, alpha=0.35, linewidth=0)
    (line,) = axes.plot(found.places, found.middle, color=colour, linewidth=1.8)
    return line, area


def short_numbers(axis: Any) -> None:
    """Ticks as 250 k and 4 M."""
    axis.set_major_formatter(lambda value, _: short(value))


def brief_numbers(axis: Any) -> None:
    """Ticks as 2,500 and 0.5, and as 250 M where they are so many that they have no room."""
    axis.set_major_formatter(lambda value, _: short(value) if abs(value) >= 1e5 else f"{value:,.10g}")


def plain_numbers(axis: Any) -> None:
    """Ticks as 250,000 and 0.5."""
    axis.set_major_formatter(lambda value, _: f"{value:,.10g}")


def logarithmic(axes: Any) -> None:
    """A logarithmic y, whose ticks are numbers as on others."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
    brief_numbers(axes.yaxis)
    axes.yaxis.set_minor_formatter(NullFormatter())


def whole_numbers(axis: Any) -> None:
    """Ticks at whole numbers only, as of records."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, nbins=8))


def from_zero(axes: Any) -> None:
    """A y that begins at 0, and ends at 1 where nothing is above 0."""
    axes.set_ylim(0, None if axes.dataLim.y1 > 0 else 1)


def short(value: float) -> str:
    """A number with three digits at most: ``250 k``."""
    rounded = float(f"{value:.3g}")
    for unit, name in ((1e18, " E"), (1e15, " P"), (1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(rounded) >= unit:
            return f"{rounded / unit:.3g}{name}"
    return f"{rounded:.3g}"


def nothing(axes: Any, theme: Theme, text: str) -> None:
    """Write into empty axes why they are empty."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=theme.text, fontsize=TEXT_SIZE)


YEAR_MS = 365.25 * 86_400_000
UNITS = ((3 * YEAR_MS, YEAR_MS, "years"), (3 * 86_400_000.0, 86_400_000.0, "days"),
         (3 * 3_600_000.0, 3_600_000.0, "h"), (180_000.0, 60_000.0, "min"), (2_000.0, 1_000.0, "s"),
         (0.0, 1.0, "ms"))  # fmt: skip
"""For each unit: the least length of an axis in ms, the unit in ms, and its name."""


@dataclass(frozen=True)
class Elapsed:
    """From the first moment to the last, ms since the epoch."""

    from_ms: float
    to_ms: float

    @cached_property
    def length(self) -> float:
        """Of the axis, in its unit; above 0."""
        return max((self.to_ms - self.from_ms) / self._unit[1], 1e-3)

    @property
    def seconds(self) -> float:
        """Of the axis; above 0."""
        return self.length * self._unit[1] / 1000

    @property
    def axis(self) -> str:
        """What the axis shows."""
        return f"time since {_clock(self.from_ms)} ({self._unit[2]})"

    @property
    def range(self) -> str:
        """For a title."""
        first, last = _date(self.from_ms), _date(self.to_ms)
        until = f"{last} " if last and last != first else ""
        return f"{first} {_clock(self.from_ms, '')} – {until}{_clock(self.to_ms)}".strip()

    @cached_property
    def _unit(self) -> tuple[float, float, str]:
        return next(unit for unit in UNITS if self.to_ms - self.from_ms >= unit[0])

    def at(self, time_ms: float) -> float:
        """The place of a moment."""
        return (time_ms - self.from_ms) / self._unit[1]

    def show(self, axes: Any, named: bool = True) -> None:
        """Give axes this one below; `named` says whether with its name."""
        axes.set_xlim(0, self.length)
        brief_numbers(axes.xaxis)
        if named:
            axes.set_xlabel(self.axis)
        else:
            axes.tick_params(labelbottom=False)


def elapsed(times_ms: Iterable[float]) -> Elapsed:
    """Of all these moments; there is one at least."""
    times = list(times_ms)
    return Elapsed(min(times), max(times))


def _clock(time_ms: float, zone: str = " UTC") -> str:
    at = moment(time_ms)
    return f"{time_ms:.0f} ms" if at is None else f"{at:%H:%M:%S}{zone}"


def _date(time_ms: float) -> str:
    at = moment(time_ms)
    return "" if at is None else f"{at:%Y-%m-%d}"


MOST_POINTS = 1_500
BINS = 120


@dataclass(frozen=True)
class Band:
    """Lowest, median and highest value at each place of an axis."""

    places: tuple[float, ...]
    lowest: tuple[float, ...]
    middle: tuple[float, ...]
    highest: tuple[float, ...]


def bin_of(place: float, length: float, count: int) -> int:
    """The number of the bin of a place between 0 and `length`."""
    return min(count - 1, max(0, int(place / length * count)))


def sums(points: Iterable[tuple[float, float]], length: float, count: int) -> list[float]:
    """The sum of the values in each bin."""
    totals = [0.0] * count
    for place, value in points:
        totals[bin_of(place, length, count)] += value
    return totals


def spread(spans: Iterable[tuple[float, float, float]], length: float, count: int) -> list[float]:
    """The sum of the values in each bin, where each value is spread evenly from one place to another."""
    totals, width = [0.0] * count, length / count
    for begin, end, value in spans:
        first, last = bin_of(begin, length, count), bin_of(end, length, count)
        if first == last:
            totals[last] += value
            continue
        edges = [begin, *(number * width for number in range(first + 1, last + 1)), end]
        for number, (left, right) in enumerate(pairwise(edges), first):
            totals[number] += value * (right - left) / (end - begin)
    return totals


def band(points: Iterable[tuple[float, float]], length: float, count: int = BINS) -> Band:
    """Of points in each bin that has any; the place of a bin is its middle."""
    bins: dict[int, list[float]] = {}
    for place, value in points:
        bins.setdefault(bin_of(place, length, count), []).append(value)
    filled = sorted(bins.items())
    return Band(
        tuple((number + 0.5) * length / count for number, _ in filled),
        tuple(min(values) for _, values in filled),
        tuple(median(values) for _, values in filled),
        tuple(max(values) for _, values in filled),
    )


def merged(spans: Iterable[tuple[float, float]], least: float) -> list[tuple[float, float]]:
    """Spans from and to, in order; those whose gap is smaller than `least` are one."""
    found: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if found and begin - found[-1][1] < least:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found
