"""The progress of a query as numbers of its groupkafka sources' partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from spark_kafka_group.metrics.group_metrics import ListenersCommits, metrics_of
from spark_kafka_group.pictures import label_text
from spark_kafka_group.pictures.elapsed import Elapsed, elapsed
from spark_kafka_group.text.json_text import excerpt, parsed
from spark_kafka_group.values.offsets import GROUP_KEY, GroupOffset, TopicPartition


@dataclass(frozen=True)
class Sample:
    """One progress.

    Attributes
    ----------
    time_ms
        When its trigger began, since the epoch.
    durations_ms
        By phase, as ``durationMs`` has them; with ``triggerExecution``, the whole.
    lag
        Records behind the end of the log, by partition; empty where the progress does not have it.
    read
        Offsets that the micro-batch read, by partition; 0 for those that had no new records.
    """

    time_ms: float
    batch: int
    groups: frozenset[str]
    durations_ms: Mapping[str, float]
    lag: Mapping[TopicPartition, int]
    read: Mapping[TopicPartition, int]


def samples(progress: Iterable[Mapping[str, Any]]) -> tuple[Sample, ...]:
    """Those that have a groupkafka source, in order of time.

    Parameters
    ----------
    progress
        StreamingQueryProgress, or dicts of the same names, as ``query.recentProgress`` has and as its JSON is.

    Raises
    ------
    ValueError
        When there is none, or it is no progress.
    """
    found = sorted((one for each in progress if (one := _sample(each))), key=lambda sample: sample.time_ms)
    if not found:
        raise ValueError("there is no progress of a groupkafka source: take recentProgress after the first micro-batch")
    return tuple(found)


def times(found: Iterable[Sample]) -> Elapsed:
    """From the first trigger to the last one's end."""
    return elapsed(ms for one in found for ms in (one.time_ms, one.time_ms + _whole(one)))


def title(found: Iterable[Sample], time: Elapsed) -> str:
    """Groups and range of time."""
    groups = frozenset[str]().union(*(one.groups for one in found))
    return label_text.title("group", groups, time.range) if groups else f"query: {time.range}"


def _whole(sample: Sample) -> float:
    return sample.durations_ms.get("triggerExecution", 0.0)


def _sample(progress: Mapping[str, Any]) -> Sample | None:
    try:
        ours = [source for each in progress["sources"] if (source := _source(each))]
        time_ms = datetime.fromisoformat(progress["timestamp"]).timestamp() * 1000
        durations = {str(name): float(ms) for name, ms in progress["durationMs"].items()}
        batch = int(progress["batchId"])
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise ValueError(f"{excerpt(progress)} is not the progress of a query: {error}") from error
    if not ours:
        return None
    groups = frozenset(str(group) for group, _, _ in ours if group)
    lag = {tp: behind for _, of_source, _ in ours for tp, behind in of_source.items()}
    read = {tp: size for _, _, of_source in ours for tp, size in of_source.items()}
    return Sample(time_ms, batch, groups, durations, lag, read)


def _source(source: Mapping[str, Any]) -> tuple[str, dict[TopicPartition, int], dict[TopicPartition, int]] | None:
    """Group, lag and records of a source; None of a source of others."""
    first, last, latest = (_json(source.get(name)) for name in ("startOffset", "endOffset", "latestOffset"))
    if GROUP_KEY not in last:
        return None
    numbers = metrics_of("", latest, ListenersCommits(), 0.0)
    lag = {tp: int(values["records-lag"]) for tp, values in numbers.partitions.items()}
    return numbers.group, lag, _read(GroupOffset.from_json(first), GroupOffset.from_json(last))


def _read(start: GroupOffset, end: GroupOffset) -> dict[TopicPartition, int]:
    starts = {**end.positions, **start.positions, **({} if start == end else end.moved)}
    return {tp: max(0, position - starts[tp]) for tp, position in end.positions.items()}


def _json(offset: object) -> dict[str, Any]:
    """Texts as pyspark has them from the JVM, or the JSON of a progress."""
    if isinstance(offset, str) and offset not in ("None", "null"):
        try:
            offset = parsed(offset)
        except ValueError:  # as sources of others may write theirs
            return {}
    return offset if isinstance(offset, dict) else {}
