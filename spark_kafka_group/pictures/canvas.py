"""Axes in the colours of a theme. The one place that needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from spark_kafka_group.pictures.themes import Theme

if TYPE_CHECKING:
    from spark_kafka_group.pictures.picture import Picture

WIDTH_PX, DPI = 900, 100
TITLE_PX, AROUND_PX = 70, 45
"""Of a figure: for its title and the name of its axis of time, and for each of its axes, for heading and space."""
TALL_PX, LOW_PX, WHOLE_PX = 265, 175, 485
"""Of axes: of two, and of those that are alone."""
ROW_PX, BAR_PX = 50, 40
"""Of axes with a row for each partition or member: at most these, the bar of a row included."""
LEAST_PX, NAME_PX = 130, 18
"""Of axes with few rows: the room for the axes' name, and for each line of the legend."""
TITLE_SIZE, TEXT_SIZE, SMALL_SIZE = 12, 10, 9
MOST_NAMED = 7
"""Members, partitions or phases that a picture names; it adds the others up."""
NEEDED = "pictures need matplotlib, which the extra 'notebook' has: pip install matplotlib"


def canvas(theme: Theme, title: str, heights_px: Sequence[float] = (TALL_PX, LOW_PX)) -> tuple[Picture, list[Any]]:
    """A figure with axes one below the other.

    Raises
    ------
    ImportError
        With advice, when matplotlib is not installed.
    """
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
