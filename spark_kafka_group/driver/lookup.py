"""From what options say of starts and ends to offsets, by asking the brokers."""

from __future__ import annotations

from collections.abc import Mapping

from spark_kafka_group.errors import OptionError
from spark_kafka_group.offsets import EARLIEST, LATEST, TopicPartition
from spark_kafka_group.options.bounds import AtTime, Position
from spark_kafka_group.wire import LogClient


def looked_up(
    client: LogClient, positions: Mapping[TopicPartition, Position], timeless: str | None = "latest"
) -> dict[TopicPartition, int]:
    """`positions` as offsets; those of partitions that do not exist any more are not there.

    Parameters
    ----------
    timeless
        What to do where no record is as new as a time: ``error``, take ``latest``, or None to leave the partition out.

    Raises
    ------
    OptionError
        When `timeless` is ``error`` and a log has no such record.
    BrokerError
    """
    times = {tp: position.ms for tp, position in positions.items() if isinstance(position, AtTime)}
    at_times = client.offsets_at(times)
    without = sorted(tp for tp, offset in at_times.items() if offset is None)
    if without and timeless == "error":
        raise OptionError(
            f"no record of {', '.join(map(str, without))} is as new as timestamp {times[without[0]]}: give an earlier "
            f"one, or set startingOffsetsByTimestampStrategy=latest to start at the end of such partitions"
        )
    if timeless == "latest":
        at_latest = {*without, *(tp for tp, position in positions.items() if position == LATEST)}
    else:
        at_latest = {tp for tp, position in positions.items() if position == LATEST}
    known = {tp: p for tp, p in positions.items() if isinstance(p, int) and p not in (EARLIEST, LATEST)}
    known |= {tp: offset for tp, offset in at_times.items() if offset is not None}
    known |= client.beginning_offsets([tp for tp, position in positions.items() if position == EARLIEST])
    return known | client.end_offsets(at_latest)
