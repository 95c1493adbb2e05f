"""Spark's file sinks beside a new checkpoint: they skip batches whose numbers their folder has, without a word.

A file sink lists its batches in ``_spark_metadata``, and a checkpoint counts them. 1. A query has written batches 0 to
9. 2. It is started with a new checkpoint, and its batch 0 is new. 3. The sink takes it for the one that it has, and
writes nothing. 4. Spark counts the batch as done, and the source commits it.

A source is not told of the sink. Only the process that starts queries can see both: jobs look before the start, and
GroupKafkaListener when it hears of the start, which Spark waits for. It leaves a file for the source, which stops the
query before it joins the group.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from spark_kafka_group.errors import OptionError
from spark_kafka_group.values.files import READERS_FOLDER, file_name, make_folder, put, read_if_locked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE_SINK = re.compile(r"FileSink\[(.*)\]", re.DOTALL)  # how Spark prints a file sink, with its folder


def require_own_output(spark: SparkSession, output: str, checkpoint: str) -> None:
    """Refuse an output folder with batches that a query has not planned which goes on from this checkpoint.

    Spark's file sinks would skip the query's batches of these numbers, and their records would be committed and not
    written. With Spark Connect, which does not show files, nothing is refused.

    `output`: of a file sink of Spark's: parquet, json, csv, orc or text.
    Raises OptionError.
    """
    classic = hasattr(spark, "_jsparkSession")
    problem = why_batches_are_skipped(spark, output, checkpoint) if classic else None
    if problem is not None:
        raise OptionError(problem)


def why_batches_are_skipped(spark: SparkSession, output: str, checkpoint: str) -> str | None:
    """What a user is to change where a file sink would skip the next batch; None where it would not."""
    written, planned = _newest_batch(spark, f"{output}/_spark_metadata"), _newest_batch(spark, f"{checkpoint}/offsets")
    if written <= planned:
        return None
    has = f"batches up to {planned} only" if planned >= 0 else "no batch"
    return (
        f"the output folder {output} has batches up to {written} of another checkpoint (in _spark_metadata), and the "
        f"checkpoint {checkpoint} has {has}: Spark would skip the next batches, and their records would be committed "
        f"and not written. Take a new output folder, or the checkpoint of this one"
    )


def _newest_batch(spark: SparkSession, log: str) -> int:
    """The highest number among the files of one of Spark's logs; -1 without any. By Hadoop's file system: Spark's own
    readers show nothing below ``_spark_metadata``, so Spark Connect cannot."""
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(log)
    files = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    names = [status.getPath().getName() for status in files.listStatus(path)] if files.exists(path) else []
    numbers = (re.fullmatch(r"(\d+)(\.compact)?", name) for name in names)
    return max((int(found[1]) for found in numbers if found), default=-1)


def refuse(directory: Path, source: str, problem: str) -> tuple[IO[str], Path]:
    """Have sources with this key stop as they begin, with this sentence, until the file is removed.

    Neither side knows a name of the query that the other one knows. Of two queries that read the same with one group,
    and start at once, both stop.

    `directory`: the application's, which its processes on the driver share.
    `source`: :attr:`~spark_kafka_group.options.Options.source_key`.
    Returns the arguments of :func:`~spark_kafka_group.values.files.remove`.
    """
    make_folder(directory / READERS_FOLDER, directory)
    path = _of(directory, source)
    return put(path, problem), path


def stop_if_refused(directory: Path | None, source: str) -> None:
    """Stop a source whose query the user's process has refused. Raises OptionError."""
    problem = None if directory is None else read_if_locked(_of(directory, source))
    if problem is not None:
        raise OptionError(problem)


def _of(directory: Path, source: str) -> Path:
    return directory / READERS_FOLDER / f"refused-{file_name(source)}"
