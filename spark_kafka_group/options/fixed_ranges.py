"""Options of a batch read whose offsets are known."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from spark_kafka_group.values.offsets import OffsetRange, positions_to_json

REPLACED = ("subscribe", "assign", "starting", "ending", "kafka.group.")
"""Beginnings of the names of options that choose records."""


def fix_ranges(options: Mapping[str, str], ranges: Collection[OffsetRange]) -> dict[str, str]:
    """`options` changed so that they read `ranges`, of which there must be one, and nothing else.

    Other partitions of the same topics, and the group's offsets, then have no effect.
    """
    partitions: dict[str, list[int]] = {}
    for r in ranges:
        partitions.setdefault(r.tp.topic, []).append(r.tp.partition)
    return {name: value for name, value in options.items() if not name.lower().startswith(REPLACED)} | {
        "assign": json.dumps(partitions),
        "startingOffsets": json.dumps(positions_to_json({r.tp: r.start for r in ranges})),
        "endingOffsets": json.dumps(positions_to_json({r.tp: r.end for r in ranges})),
    }
