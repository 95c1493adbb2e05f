"""The topic column, built from runs of rows instead of row by row."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pyarrow as pa


class TopicColumn:
    """Makes topic columns; nearly every batch is of one topic, whose repeated name is kept and sliced."""

    def __init__(self) -> None:
        self._topic: str | None = None
        self._repeated: pa.Array = pa.nulls(0, pa.string())

    def build(self, runs: Sequence[tuple[str, int]]) -> pa.Array:
        """An array of each run's topic, as often as its rows."""
        merged: list[tuple[str, int]] = []
        for topic, rows in runs:
            if merged and merged[-1][0] == topic:
                merged[-1] = topic, merged[-1][1] + rows
            elif rows:
                merged.append((topic, rows))
        if not merged:
            return self._repeated.slice(0, 0)
        if len(merged) > 1:
            return pa.concat_arrays([_repeated(topic, rows) for topic, rows in merged])
        topic, rows = merged[0]
        if topic != self._topic or len(self._repeated) < rows:
            self._topic, self._repeated = topic, _repeated(topic, rows + rows // 8)
        return self._repeated.slice(0, rows)


def _repeated(topic: str, rows: int) -> pa.Array:
    """The same string `rows` times, from plain buffers: a value that pyarrow converts makes it import pandas."""
    text = topic.encode()
    ends = array("i", range(0, (rows + 1) * len(text), len(text)))
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(ends), pa.py_buffer(text * rows)])
