"""Where queries are that read: their positions are in their checkpoints, and nowhere in Kafka."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from spark_kafka_group.text.foreign_text import parsed
from spark_kafka_group.tools.arguments import ToolError
from spark_kafka_group.values.files import local_folder
from spark_kafka_group.values.offsets import GROUP_KEY, GroupOffset, TopicPartition

Positions = Mapping[str | None, Mapping[TopicPartition, int]]
"""By group, and by partition; None is for checkpoints that do not say their group."""
OF_A_SOURCE = re.compile(r"(?:\w+:)?(?=\{)")
"""What precedes an offset in version 2 of Spark's offset log: the source's name, or its number. Version 1 has nothing
there, and the sources in their order in the query."""


def positions(checkpoints: Iterable[Path]) -> Positions:
    """Where the newest planned batch of each query ends. `checkpoints`: directories of Spark's checkpoints
    (``OffsetSeqLog``: a file a batch in ``offsets``, a line a source). Raises ToolError when one is no checkpoint of a
    groupkafka query."""
    found: dict[str | None, dict[TopicPartition, int]] = {}
    for checkpoint in checkpoints:
        log = local_folder(str(checkpoint)) / "offsets"
        batches = sorted(int(file.name) for file in log.glob("*") if file.name.isdecimal())
        if not batches:
            raise ToolError(
                f"{checkpoint} is not the checkpoint of a query that has planned a batch: it has no offsets"
            )
        try:
            lines = (log / str(batches[-1])).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ToolError(f"{checkpoint}: batch {batches[-1]} cannot be read: {error}") from error
        sources = [line for line in lines if f'"{GROUP_KEY}"' in line]
        if not sources:
            raise ToolError(f"{checkpoint} is the checkpoint of a query that does not read with groupkafka")
        try:
            for line in sources:
                offset = GroupOffset.from_json(parsed(OF_A_SOURCE.sub("", line, count=1)))
                found.setdefault(offset.group_id, {}).update(offset.positions)
        except ValueError as error:
            raise ToolError(f"{checkpoint}: batch {batches[-1]} cannot be read: {error}") from error
    return found


def of_group(found: Positions, group: str) -> dict[TopicPartition, int]:
    """The positions of queries in a group."""
    return {**found.get(None, {}), **found.get(group, {})}
