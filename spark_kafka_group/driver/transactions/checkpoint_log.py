"""What Spark's checkpoint has of a batch, where the driver can read it as a file: which offsets the batch is to read.

Python workers have no Hadoop file system. So this serves checkpoints on a local disk, or on one that is mounted. Spark
logs a batch before it plans it, once, and with the time of that; a batch that is run again is read from that log.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from spark_kafka_group.exactly_once import BatchId
from spark_kafka_group.json_text import parsed

LOCAL = "file:"


def logged_batch(checkpoint: str | None, batch: BatchId) -> str:
    """A digest of what the checkpoint has of a batch; empty where that cannot be read, or is another query's."""
    logged = _logged(checkpoint, batch)
    return hashlib.sha256(logged).hexdigest() if logged else ""


def has_none_of(checkpoint: str | None, batch: BatchId, words: Iterable[str]) -> bool:
    """Whether what the checkpoint has of a batch can be read, and contains none of these words."""
    logged = _logged(checkpoint, batch)
    return bool(logged) and not any(word.encode() in logged for word in words)


def _logged(checkpoint: str | None, batch: BatchId) -> bytes:
    if not checkpoint:
        return b""
    folder = Path("/" + checkpoint.removeprefix(LOCAL).lstrip("/") if checkpoint.startswith(LOCAL) else checkpoint)
    try:
        # There may be a local folder of the same name as one of Spark's default file system.
        if parsed((folder / "metadata").read_bytes()).get("id") != batch.query:
            return b""
        return (folder / "offsets" / str(batch.batch)).read_bytes()
    except (OSError, ValueError, AttributeError):
        return b""
