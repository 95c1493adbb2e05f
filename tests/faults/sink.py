"""The rows in a sink, with the number of the batch that wrote each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq

from faults.judge.evidence import Row

LOG = "_spark_metadata"
KEY = "concat_ws(' ', '{query}', topic, partition, offset)"
"""Of a record that a query writes, in Spark's SQL: where it was read."""


def rows_in(out: Path, query: int = 0) -> list[Row]:
    """All rows that a reader of the sink sees: of Spark's file sink, those of the files that its log has."""
    files = files_of_log(out) if (out / LOG).exists() else files_by_batch(out)
    found = []
    for batch, file in files:
        columns = pq.ParquetFile(file).read(["topic", "partition", "offset", "value"]).to_pydict()
        found += [Row(batch, *row, query) for row in zip(*columns.values(), strict=True)]
    return found


def files_of_log(out: Path) -> Iterator[tuple[int, Path]]:
    """Files that are in the file sink's log, each with its batch."""
    seen: set[str] = set()
    for path in sorted((p for p in (out / LOG).iterdir() if p.name.split(".")[0].isdecimal()), key=_number):
        for line in path.read_text().splitlines()[1:]:
            entry = json.loads(line)
            if entry["action"] == "add" and entry["path"] not in seen:  # a compacted log repeats all before it
                seen.add(entry["path"])
                yield _number(path), Path(unquote(urlparse(entry["path"]).path))


def files_by_batch(out: Path) -> Iterator[tuple[int, Path]]:
    """Files in a folder for each batch, of jobs that have succeeded."""
    for folder in out.glob("batch=*"):
        if (folder / "_SUCCESS").exists():
            yield from ((int(folder.name.partition("=")[2]), file) for file in folder.glob("*.parquet"))


def row_of(key: str, value: str, batch_of: Callable[[int, tuple[str, int], int], int]) -> Row:
    """The row that a record of an output topic is, by its key and its value."""
    query, topic, partition, offset = key.split(" ")
    number, place = int(query.removeprefix("query")), (topic, int(partition))
    return Row(batch_of(number, place, int(offset)), *place, int(offset), value, number)


def _number(path: Path) -> int:
    return int(path.name.split(".")[0])
