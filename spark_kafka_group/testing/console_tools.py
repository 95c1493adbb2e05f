"""The output of kafka-consumer-groups, as values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GroupRow:
    """One partition as ``kafka-consumer-groups --describe`` shows it; "-" is None."""

    topic: str
    partition: int
    current_offset: int | None
    log_end_offset: int | None
    lag: int | None
    consumer_id: str | None
    host: str | None
    client_id: str | None


def parse_describe(text: str) -> list[GroupRow]:
    """Rows of the table, in order of topic and partition."""
    rows = []
    columns: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if words[:2] == ["GROUP", "TOPIC"]:
            columns = words
        elif columns and len(words) == len(columns):
            cell = {name: None if word == "-" else word for name, word in zip(columns, words, strict=True)}
            rows.append(
                GroupRow(
                    topic=cell["TOPIC"] or "",
                    partition=int(cell["PARTITION"] or -1),
                    current_offset=_number(cell["CURRENT-OFFSET"]),
                    log_end_offset=_number(cell["LOG-END-OFFSET"]),
                    lag=_number(cell["LAG"]),
                    consumer_id=cell["CONSUMER-ID"],
                    host=cell["HOST"],
                    client_id=cell["CLIENT-ID"],
                )
            )
    return sorted(rows, key=lambda row: (row.topic, row.partition))


def _number(cell: str | None) -> int | None:
    return None if cell is None else int(cell)
