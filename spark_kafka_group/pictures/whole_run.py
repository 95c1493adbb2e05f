"""A run from its files of events, in one figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_kafka_group.pictures import (
    batch_timeline,
    canvas,
    committed_records,
    logged_run,
    owned_partitions,
    themes,
)
from spark_kafka_group.pictures.logged_run import Files
from spark_kafka_group.pictures.themes import Theme
from spark_kafka_group.tools.event_logs import Event

if TYPE_CHECKING:
    from spark_kafka_group.pictures.picture import Picture


def overview(files: Files, theme: str = "light") -> Picture:
    """Owners, batches and records of a run, one below the other, with one axis of time.

    The parameters and errors are those of :func:`spark_kafka_group.pictures.owners`.
    """
    return overview_of(logged_run.read(files).events, themes.named(theme))


def overview_of(events: Sequence[Event], theme: Theme) -> Picture:
    """As :func:`overview`, of events in order of time; there is one at least."""
    time = logged_run.times(events)
    rows_px = (owned_partitions.height_px(events), batch_timeline.height_px(events))
    heights_px = (*rows_px, canvas.LOW_PX, canvas.TALL_PX, canvas.LOW_PX)
    figure, axes = canvas.canvas(theme, logged_run.title(events, time), heights_px)
    owned_partitions.draw(axes[0], events, time, theme, named=False)
    batch_timeline.draw(axes[1], axes[2], events, time, theme, named=False)
    committed_records.draw(axes[3], axes[4], events, time, theme)
    return figure
