"""The names of partitions along the y axis of a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spark_kafka_group.pictures import canvas
from spark_kafka_group.pictures.label_text import label, nth
from spark_kafka_group.pictures.owned_spans import Partition

MOST_LABELS = 20
LONGEST = 18
FEW = 6
"""Rows beside which a name in one line would have no room."""


def name_rows(axes: Any, rows: Sequence[Partition], every: int = 1) -> None:
    """Name rows from the top, of which `every` is how many partitions each stands for."""
    topics = sorted({(group, tp.topic) for group, tp in rows})
    if len(topics) == 1:
        _number(axes, rows, topics[0][1], every)
    elif len(rows) <= MOST_LABELS:
        axes.set_yticks(range(len(rows)), [f"{label(tp.topic, LONGEST)}-{tp.partition}" for _, tp in rows])
        axes.set_ylabel("partition")
    else:
        _name_topics(axes, rows, len({topic for _, topic in topics}), every)
    axes.set_ylim(len(rows) - 0.5, -0.5)


def _number(axes: Any, rows: Sequence[Partition], topic: str, every: int) -> None:
    axes.set_ylabel(
        f"{nth(every)}partition of {label(topic)}" if len(rows) > FEW else f"partition\nof {label(topic, LONGEST)}"
    )
    step = -(-len(rows) // MOST_LABELS) if len(rows) > MOST_LABELS else 1
    step = next(size for size in (1, 2, 5, 10, 20, 50, 100, 1_000, len(rows)) if size >= step)
    places = range(0, len(rows), step)
    axes.set_yticks(places, [str(rows[place][1].partition) for place in places])


def _name_topics(axes: Any, rows: Sequence[Partition], topics: int, every: int) -> None:
    """Name each topic at its first row, as far as there is room."""
    firsts = {(group, tp.topic): row for row, (group, tp) in reversed([*enumerate(rows)])}
    apart, places = len(rows) / MOST_LABELS, list[tuple[int, str]]()
    for (_, topic), row in sorted(firsts.items(), key=lambda found: found[1]):
        if not places or row - places[-1][0] >= apart:
            places.append((row, label(topic, LONGEST)))
    axes.set_yticks([row for row, _ in places], [name for _, name in places])
    axes.set_ylabel(f"{nth(every)}partition of {canvas.short(topics)} topics")
