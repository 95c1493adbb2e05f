"""Where queries are that read: their positions are in their checkpoints, and nowhere in Kafka."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from spark_kafka_group.json_text import parsed
from spark_kafka_group.offsets import GROUP_KEY, GroupOffset, TopicPartition
from spark_kafka_group.tools.command_errors import ToolError


def positions(checkpoints: Iterable[Path]) -> dict[TopicPartition, int]:
    """Where the newest planned batch of each query ends, by partition.

    Parameters
    ----------
    checkpoints
        Directories of Spark's checkpoints (``OffsetSeqLog``: a file a batch in ``offsets``, a line a source).

    Raises
    ------
    ToolError
        When one is no checkpoint of a groupkafka query.
    """
    by_partition: dict[TopicPartition, int] = {}
    for checkpoint in checkpoints:
        batches = sorted(int(file.name) for file in (checkpoint / "offsets").glob("*") if file.name.isdecimal())
        if not batches:
            raise ToolError(
                f"{checkpoint} is not the checkpoint of a query that has planned a batch: it has no offsets"
            )
        try:
            lines = (checkpoint / "offsets" / str(batches[-1])).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ToolError(f"{checkpoint}: batch {batches[-1]} cannot be read: {error}") from error
        sources = [line for line in lines if f'"{GROUP_KEY}"' in line]
        if not sources:
            raise ToolError(f"{checkpoint} is the checkpoint of a query that does not read with groupkafka")
        try:
            for line in sources:
                by_partition |= GroupOffset.from_json(parsed(line)).positions
        except ValueError as error:
            raise ToolError(f"{checkpoint}: batch {batches[-1]} cannot be read: {error}") from error
    return by_partition
