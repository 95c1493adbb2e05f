"""Colours of pictures, which people with any kind of colour vision can tell apart (after Okabe and Ito)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Theme:
    """Colours for one background, as ``#rrggbb``."""

    background: str
    panel: str
    text: str
    grid: str
    faint: str
    """The colour of lines that must not hide others."""
    hatch: str
    rest: str
    """The colour of all members or partitions without a colour of their own."""
    alarm: str
    members: tuple[str, ...]
    heat: str
    """A colour map of matplotlib's, whose low end is near the background."""


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


def named(theme: str) -> Theme:
    """A theme by its name.

    Raises
    ------
    ValueError
        When there is none of this name.
    """
    if theme not in THEMES:
        raise ValueError(f"theme ({theme!r}) must be one of {', '.join(THEMES)}")
    return THEMES[theme]
