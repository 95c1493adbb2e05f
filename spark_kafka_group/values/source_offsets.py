"""The offsets of a source's running micro-batch, for the sink that commits them in its transaction (KIP-447).

Spark runs the source and the end of the sink's write in processes of their own on the driver's machine, and neither is
told of the other, nor of the query. What they share is the application's temporary directory, and the
kafka.transactional.id that the user gives to both. So each source with that id keeps a file there, locked while its
process lives:

1. Spark asks the source for the latest offset, so no micro-batch of the query runs: nothing is published.
2. Spark begins a micro-batch: it asks the source for its tasks, and the source publishes the batch's offsets. Only then
   Spark asks the sink for a writer of this batch, so the sink finds them, of each source of the query that reads
   anything.
3. The sink commits them with the batch's rows, as the member that planned the batch, and in its generation: the
   group's coordinator refuses the offsets of a member that was fenced, or that has lost its partitions.
4. Spark asks the source for the latest offset again.

The offsets that the sink finds when it plans its write are those it has to find when it commits, perhaps of the same
member in a later generation. If they differ, the source has ended meanwhile, or was started again, and the batch must
not be written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spark_kafka_group.text.foreign_text import parsed
from spark_kafka_group.values.exactly_once import SourceBatch
from spark_kafka_group.values.files import READERS_FOLDER, file_name, read_if_locked
from spark_kafka_group.values.offsets import TopicPartition, positions_from_json, positions_to_json

FOLDERS = "offsets-"  # how the folders of sources begin, one for each kafka.transactional.id


@dataclass(frozen=True)
class SourceOffsets:
    """The offsets of one micro-batch of one source, and the member of the group that may commit them."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None  # group.instance.id; None for a dynamic member
    query_id: str  # the source's id, kept in the query's checkpoint
    batch: int  # number of the batch among those of this source that had data; not Spark's
    metadata: str  # to be committed with each offset: by it the source knows the commit as that of this batch
    # The next offset of each partition; none where the batch goes without all of its partitions
    offsets: Mapping[TopicPartition, int]
    leader_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)  # of these offsets, where they are known
    decision_topic: str = ""  # where the source looks up what was decided of its batches

    def to_json(self) -> dict[str, Any]:
        offsets = {"offsets": positions_to_json(self.offsets), "leader_epochs": positions_to_json(self.leader_epochs)}
        return self.__dict__ | offsets

    @property
    def read(self) -> SourceBatch:
        """Source, batch and offsets, whichever member commits them."""
        return SourceBatch(self.query_id, self.batch, self.offsets)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SourceOffsets:
        names = ("offsets", "leader_epochs")
        return cls(**(dict(value) | {name: positions_from_json(value[name], name) for name in names}))


@dataclass(frozen=True)
class LiveSource:
    """A source whose process lives, as its file has it."""

    query_id: str
    round: int  # how often Spark has asked it for the latest offset
    is_asked: bool = False  # whether Spark is asking for it just now
    has_begun: bool = False  # whether it has begun a micro-batch that was planned by the same process
    # The offsets of the batch that runs; None while none does, or one that reads nothing from this source
    running: SourceOffsets | None = None

    def to_text(self) -> str:
        """As its file has it. The first line, of fixed length, can be written again in its place."""
        running = None if self.running is None else self.running.to_json()
        body = {"reader": self.query_id, "has_begun": self.has_begun, "running": running}
        return f"{self.first_line}{json.dumps(body)}\n"

    @property
    def first_line(self) -> str:
        """The line that can be written again in its place."""
        return f"{self.round:020d} {int(self.is_asked)}\n"

    @classmethod
    def from_text(cls, text: str) -> LiveSource:
        """Read what :meth:`to_text` wrote."""
        line, _, body = text.partition("\n")
        value = parsed(body)
        running = value["running"] and SourceOffsets.from_json(value["running"])
        number, is_asked = map(int, line.split())
        return cls(value["reader"], number, bool(is_asked), value["has_begun"], running)


def folder_of(directory: Path, transactional_id: str) -> Path:
    """Where the sources with this id keep their files, below a directory of the application."""
    return directory / READERS_FOLDER / f"{FOLDERS}{file_name(transactional_id)}"


def live_sources(directory: Path, transactional_id: str) -> Iterator[LiveSource]:
    """The sources of this application with this id whose processes live, in order of their files."""
    yield from _live_in(folder_of(directory, transactional_id))


def running_with_another_id(directory: Path, transactional_id: str | None) -> Iterator[LiveSource]:
    """The sources of this application that have an id, but not this one, and of which a batch runs."""
    own = None if transactional_id is None else folder_of(directory, transactional_id)
    for folder in sorted((directory / READERS_FOLDER).glob(f"{FOLDERS}*")):
        if folder != own:
            yield from (source for source in _live_in(folder) if source.running is not None)


def _live_in(folder: Path) -> Iterator[LiveSource]:
    for path in sorted(folder.glob("*.json")):
        text = read_if_locked(path)
        if text is not None:
            yield LiveSource.from_text(text)


def published(directory: Path, transactional_id: str) -> list[SourceOffsets]:
    """The offsets of the micro-batch that runs, of each source with this kafka.transactional.id that reads anything.
    `directory`: :func:`spark_kafka_group.driver.process.shared_directory`."""
    return [source.running for source in live_sources(directory, transactional_id) if source.running is not None]
