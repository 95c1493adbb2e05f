"""A figure that any notebook shows."""

from __future__ import annotations

import warnings
from io import BytesIO
from typing import Any

from matplotlib.figure import Figure

DATED = {"png": "Software", "svg": "Date", "pdf": "CreationDate"}
"""The field of each format in which equal pictures would differ."""
_SMALL: dict[str, Any] = {"png": {"pil_kwargs": {"optimize": True}}}


class Picture(Figure):
    """Made without pyplot: nothing looks for a display, and nothing keeps the figure."""

    @property
    def size_px(self) -> tuple[int, int]:
        width, height = (self.get_size_inches() * self.dpi).round()
        return int(width), int(height)

    def _repr_png_(self) -> bytes:
        written = BytesIO()
        self.write(written, "png")
        return written.getvalue()

    def write(self, file: Any, form: str) -> None:
        """Write it as png, svg or pdf, to a path or a file."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)  # a name may have any character
            self.savefig(file, format=form, metadata={DATED[form]: None}, **_SMALL.get(form, {}))
