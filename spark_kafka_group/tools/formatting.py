"""How values look in a terminal: tables, times, and who wrote a commit."""

from __future__ import annotations

import contextlib
import shutil
import sys
import textwrap
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime

from spark_kafka_group.text.foreign_text import printable
from spark_kafka_group.text.text_table import FOLD, GAP, NOTHING, folded, shortened, whole
from spark_kafka_group.values.commit_metadata import Writer
from spark_kafka_group.values.offsets import TopicPartition, partitions_by_topic

BRIEF_ID = 9


def written_by(writer: Writer, brief: bool = False) -> str:
    """Who wrote a commit; `brief` with a shortened id."""
    name = shortened(printable(writer.query_id), BRIEF_ID) if brief else f"reader {printable(writer.query_id)}"
    named = f"{name}, generation {writer.generation}"
    if writer.batch is None:
        return named
    return f"{named}, before its first batch" if writer.batch < 0 else f"{named}, batch {writer.batch}"


def query_and_batch(writer: Writer) -> str:
    """Who wrote a commit, in the room of a column."""
    return writer.query_id if writer.batch is None else f"{writer.query_id}:{writer.batch}"


def moment(timestamp_ms: float) -> datetime | None:
    """A time in UTC; None where no calendar has it."""
    with contextlib.suppress(ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return None


def instant(timestamp_ms: float | None) -> str:
    """A time as ISO 8601 in UTC, with milliseconds; as the number that it is where no calendar has it."""
    if timestamp_ms is None:
        return NOTHING
    at = moment(timestamp_ms)
    return f"{timestamp_ms} ms" if at is None else at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def partitions(tps: Collection[TopicPartition]) -> str:
    """Partitions as ``orders:0,1 returns:0``, the way ``--topic`` takes them."""
    topics = partitions_by_topic(tps).items()
    return " ".join(f"{topic}:{','.join(str(tp.partition) for tp in of)}" for topic, of in topics) or NOTHING


def table(headers: Sequence[str], rows: Sequence[Sequence[object]], may_lack: Collection[str] = ()) -> str:
    """A table for standard output: folded to the width of a terminal, and else whole, as scripts read it. `may_lack`:
    headers of columns that a terminal shows only if a row has a value there."""
    if not sys.stdout.isatty():
        return whole(headers, rows)
    kept = [n for n, header in enumerate(headers) if header not in may_lack or any(row[n] is not None for row in rows)]
    return folded([headers[n] for n in kept], [[row[n] for n in kept] for row in rows], _columns_of_terminal())


def texts(header: str, named: Mapping[str, str]) -> str:
    """Texts by name for standard output, with line breaks between words on a terminal."""
    room = max(map(len, named)) + len(GAP)
    rows = {"NAME": header, **named}
    if not sys.stdout.isatty():
        return "\n".join(f"{name:{room}}{text}" for name, text in rows.items())
    return "\n".join(
        textwrap.fill(text, _columns_of_terminal(), initial_indent=f"{name:{room}}", subsequent_indent=" " * room)
        for name, text in rows.items()
    )


def sentence(text: str) -> str:
    """A line for standard output, with line breaks between words on a terminal."""
    text = printable(text)
    if sys.stdout.isatty():
        return textwrap.fill(text, _columns_of_terminal(), subsequent_indent=FOLD, break_on_hyphens=False)
    return text


def _columns_of_terminal() -> int:
    return shutil.get_terminal_size().columns
