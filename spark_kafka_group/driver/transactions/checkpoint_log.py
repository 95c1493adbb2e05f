"""What Spark's checkpoint has of a batch, where the driver can read it as a file: which offsets the batch is to read.

Python workers have no Hadoop file system. So this serves checkpoints on a local disk, or on one that is mounted. Spark
logs a batch before it plans it, once, and with the time of that; a batch that is run again is read from that log.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from spark_kafka_group.exactly_once import BatchId
from spark_kafka_group.json_text import parsed

LOCAL = "file:"


def logged_batch(checkpoint: str | None, batch: BatchId) -> str:
    """A digest of what the checkpoint has of a batch; empty where that cannot be read, or is another query's."""
    if not checkpoint:
        return ""
    folder = Path("/" + checkpoint.removeprefix(LOCAL).lstrip("/") if checkpoint.startswith(LOCAL) else checkpoint)
    try:
        # There may be a local folder of the same name as one of Spark's default file system.
        if parsed((folder / "metadata").read_bytes()).get("id") != batch.query:
            return ""
        return hashlib.sha256((folder / "offsets" / str(batch.batch)).read_bytes()).hexdigest()
    except (OSError, ValueError, AttributeError):
        return ""
