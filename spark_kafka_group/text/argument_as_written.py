"""Arguments with several spellings: errors name the one that was written."""

from __future__ import annotations

import argparse
from typing import Any


class AsWritten(argparse.Action):
    """Keeps a value, and under ``<dest>_as_written`` which spelling of the argument it had, for errors."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        setattr(namespace, self.dest, values)
        setattr(namespace, f"{self.dest}_as_written", option_string)
