"""The output of VerifiableConsumer, as events and rows like those of the other members.

It does not print generations. They are taken from the group's own records in ``__consumer_offsets``: the coordinator
stores a generation before it answers a SyncGroup, so the generation of an assignment that a consumer prints is the last
stored one which has that consumer (by its client id) and is not younger than the print. There cannot be a younger
one with that consumer: it would have had to join again. All reads and commits up to its next assignment belong to that
generation.

Rows of a poll are printed before the poll, and this before it is committed, so that a killed consumer has printed all
that it committed. The time of a commit is that of the poll.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spark_kafka_group.values.offsets import OffsetRange, TopicPartition, positions_to_json

NEWER = "javanewer"
"""How the names of consumers of the newer protocol begin."""
TICK_MS = 1.0
"""The precision of the times it prints."""


def printed(lines: Iterable[str]) -> list[dict[str, Any]]:
    """The JSON lines; anything else, and a last line cut off, is passed over."""
    found = []
    for line in lines:
        try:
            obj = json.loads(line)
        except ValueError:
            continue
        if isinstance(obj, dict) and "name" in obj:
            found.append(obj)
    return found


def generation_at(stored: Sequence[Mapping[str, Any]], client_id: str, time_ms: float) -> Mapping[str, Any] | None:
    """The last stored generation with that client up to a time."""
    with_it = [
        g
        for g in stored
        if g["time_ms"] <= time_ms + TICK_MS and any(m["client_id"] == client_id for m in g["members"])
    ]
    return with_it[-1] if with_it else None


def convert(
    objs: Iterable[Mapping[str, Any]], stored: Sequence[Mapping[str, Any]], group: str, member: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Events and rows of one consumer; `stored` are the group's generations in order.

    A consumer of the newer protocol prints what is added to its partitions, and its epoch changes without a word: its
    events have no generation.
    """
    newer, owned = member.startswith(NEWER), set[tuple[str, int]]()
    events: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    batch, generation, polled_at = -1, -1, 0.0
    pending: list[tuple[int, int, str]] = []

    def event(kind: str, time_ms: float, **more: Any) -> None:
        events.append(
            {"time_ms": time_ms, "event": kind, "group": group, "member": member, "generation": generation} | more
        )

    for obj in objs:
        time_ms = float(obj["timestamp"])
        match obj["name"]:
            case "partitions_assigned" if newer:
                owned |= {(p["topic"], p["partition"]) for p in obj["partitions"]}
                event("assigned", time_ms, partitions=_numbers({"topic": t, "partition": p} for t, p in sorted(owned)))
            case "partitions_assigned":
                found = generation_at(stored, member, time_ms)
                if found is not None:
                    generation = found["generation"]
                    given = next(m["partitions"] for m in found["members"] if m["client_id"] == member)
                    event("assigned", time_ms, partitions=given)
            case "partitions_revoked":
                owned -= {(p["topic"], p["partition"]) for p in obj["partitions"]}
                event("revoked", time_ms, partitions=_numbers(obj["partitions"]))
            case "record_data":
                pending.append((obj["partition"], obj["offset"], obj["value"]))
            case "records_consumed" if obj["count"]:
                batch, polled_at = batch + 1, time_ms
                read = [p for p in obj["partitions"] if p["count"]]
                ranges = [
                    OffsetRange(TopicPartition(p["topic"], p["partition"]), p["minOffset"], p["maxOffset"] + 1)
                    for p in read
                ]
                bounds: dict[str, dict[str, list[int]]] = {}
                for r in ranges:
                    bounds.setdefault(r.tp.topic, {})[str(r.tp.partition)] = [r.start, r.end]
                event("planned", time_ms, batch=batch, ranges=bounds)
                if pending:
                    rows.append({"batch": batch, "rows": pending})
                    pending = []
            case "offsets_committed" if obj["success"] and obj["offsets"]:
                offsets = {TopicPartition(o["topic"], o["partition"]): o["offset"] for o in obj["offsets"]}
                event("committed", polled_at, batch=batch, offsets=positions_to_json(offsets))
            case "shutdown_complete":
                event("stopped", time_ms)
    if pending:
        rows.append({"batch": batch + 1, "rows": pending})
    return events, rows


def _numbers(partitions: Iterable[Mapping[str, Any]]) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = {}
    for p in partitions:
        numbers.setdefault(p["topic"], []).append(p["partition"])
    return numbers
