"""Text that must not be seen."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, repr=False)
class Secret:
    """A password or a key. Shows nothing of itself wherever it is printed, logged or formatted."""

    text: str

    def __repr__(self) -> str:
        return "Secret(hidden)"
