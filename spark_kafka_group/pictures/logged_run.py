"""The files of events that pictures are drawn from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import cycle
from pathlib import Path

from spark_kafka_group.pictures import label_text
from spark_kafka_group.pictures.canvas import MOST_NAMED
from spark_kafka_group.pictures.elapsed import Elapsed, elapsed
from spark_kafka_group.pictures.themes import Theme
from spark_kafka_group.tools.command_errors import ToolError
from spark_kafka_group.tools.event_logs import Event, Run, read_run

Files = Iterable[Path | str]
Member = tuple[str, str]
"""Group and member."""
LONGEST_OF_BOTH = 13
"""Characters of the group's name, and of the member's, where both are shown."""


def read(files: Files) -> Run:
    """Events of all files, in order of time.

    Raises
    ------
    ToolError
        When a file cannot be read, a line is no event, or there is no event at all.
    """
    if isinstance(files, str | Path):
        files = [files]
    paths = [Path(file) for file in files]
    run = read_run(paths)
    if not run.events:
        names = ", ".join(map(str, paths)) or "no file"
        raise ToolError(f"{names}: no events; a query with option eventLog writes them")
    return run


def times(events: Iterable[Event]) -> Elapsed:
    """From the first event to the last."""
    return elapsed(event.time_ms for event in events)


def title(events: Iterable[Event], time: Elapsed) -> str:
    """Groups and range of time."""
    return label_text.title("group", {event.group for event in events}, time.range)


def members(events: Iterable[Event]) -> dict[Member, str]:
    """Labels of members, in order of their first event; of more than a picture can name, those with most events first.

    Pictures of one run give them colours and names in this order.
    """
    counts = Counter((event.group, event.member) for event in events)
    ordered = list(counts) if len(counts) <= MOST_NAMED else [member for member, _ in counts.most_common()]
    groups = {group for group, _ in ordered}
    if len(groups) == 1:
        short = label_text.ids([member for _, member in ordered])
        return {(group, member): short[member] for group, member in ordered}
    # Both together have the room of one, at both sides of a picture.
    short = label_text.ids([member for _, member in ordered], LONGEST_OF_BOTH)
    prefixes = label_text.ids(groups, LONGEST_OF_BOTH)
    return {(group, member): f"{prefixes[group]}: {short[member]}" for group, member in ordered}


def colours(found: Iterable[Member], theme: Theme) -> dict[Member, str]:
    """Of members as :func:`members` orders them; they repeat."""
    return dict(zip(found, cycle(theme.members), strict=False))
