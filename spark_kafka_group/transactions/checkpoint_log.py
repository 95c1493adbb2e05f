"""What Spark's checkpoint has of a batch, where the driver can read it as a file: which offsets the batch is to read.

Python workers have no Hadoop file system. So this serves checkpoints on a local disk, or on one that is mounted. Spark
logs a batch before it plans it, once, and with the time of that; a batch that is run again is read from that log. A
query whose source and sink have different kafka.transactional.ids is refused before rows are written.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from spark_kafka_group.errors import OptionError
from spark_kafka_group.text.foreign_text import parsed
from spark_kafka_group.values.exactly_once import BatchId
from spark_kafka_group.values.files import local_folder
from spark_kafka_group.values.offsets import GROUP_KEY
from spark_kafka_group.values.source_offsets import running_with_another_id


def logged_batch(checkpoint: str | None, batch: BatchId) -> str:
    """A digest of what the checkpoint has of a batch; empty where that cannot be read, or is another query's."""
    logged = _logged(checkpoint, batch)
    return hashlib.sha256(logged).hexdigest() if logged else ""


def is_without(checkpoint: str | None, batch: BatchId, query_id: str, topics: Iterable[str]) -> bool:
    """Whether what the checkpoint has of a batch can be read, and none of its lines, one a source, is of the source
    with this id. `topics` tell only of lines by Spark's own source, from before a takeover."""
    lines = _logged(checkpoint, batch).splitlines()
    quoted, names = json.dumps(query_id).encode(), [topic.encode() for topic in topics]
    return bool(lines) and not any(
        quoted in line if GROUP_KEY.encode() in line else any(name in line for name in names) for line in lines
    )


def newest_has(checkpoint: str | None, query_id: str) -> bool:
    """Whether the checkpoint can be read, and the newest batch in it has this source: it runs, or is to be planned."""
    if not checkpoint:
        return False
    try:
        logged = (local_folder(checkpoint) / "offsets").iterdir()
        newest = max((path for path in logged if path.name.isdecimal()), key=lambda path: int(path.name), default=None)
        return newest is not None and json.dumps(query_id).encode() in newest.read_bytes()
    except OSError:
        return False


def _logged(checkpoint: str | None, batch: BatchId) -> bytes:
    if not checkpoint:
        return b""
    folder = local_folder(checkpoint)
    try:
        # There may be a local folder of the same name as one of Spark's default file system.
        if parsed((folder / "metadata").read_bytes()).get("id") != batch.query:
            return b""
        return (folder / "offsets" / str(batch.batch)).read_bytes()
    except (OSError, ValueError, AttributeError):
        return b""


GOES_WITHIN_S = 3.0  # how long a source of the query's last run, which had another id, may take to end
PAUSE_S = 0.05


def check(transactional_id: str | None, checkpoint: str | None, shared: Path | None) -> None:
    """Refuse a micro-batch whose source leaves its offsets to a sink with another id than this one has.

    1. The batch would be written, and its offsets would not be committed. 2. The source would notice, and stop the
    query. 3. Started again with one id, it would read the batch a second time. It is noticed where this process can
    read the checkpoint; elsewhere the source alone notices.

    `transactional_id`: of the sink; None where it is at least once.
    `shared`: as of :func:`~spark_kafka_group.transactions.planning.planned`.
    Raises OptionError.
    """
    if shared is None:
        return
    until = time.monotonic() + GOES_WITHIN_S
    while any(newest_has(checkpoint, source.query_id) for source in running_with_another_id(shared, transactional_id)):
        if time.monotonic() > until:
            _refuse(transactional_id)
        time.sleep(PAUSE_S)


def _refuse(transactional_id: str | None) -> NoReturn:
    if transactional_id is None:
        raise OptionError(
            "a source of this query has a kafka.transactional.id, and leaves its offsets to the sink: give the sink "
            "the same one and deliveryGuarantee=exactly-once, or remove it from the source"
        )
    raise OptionError(
        f"kafka.transactional.id is {transactional_id} for the sink, and another one for a source of this query: give "
        f"both the same, or remove it from the source"
    )
