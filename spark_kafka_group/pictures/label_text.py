"""Names of others as texts of a picture: groups, members and topics may have any characters, and any length."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise, takewhile

from spark_kafka_group.text.printable import printable

LONGEST = 28
LONGEST_OF_SEVERAL = 22
LONGEST_TITLE = 90
"""Characters of a line of the title that are not wider than a picture."""
SHORTEST_ID = 8
MOST_NAMED = 3


def label(name: str, longest: int = LONGEST) -> str:
    """`name` in one line, cut in the middle, with nothing that matplotlib takes for mathematics."""
    shown = printable(name[: 4 * longest])
    if len(shown) > longest or len(name) > 4 * longest:
        half = (longest - 1) // 2
        shown = f"{shown[:half]}…{printable(name[-half:])[-half:]}"
    shown = shown.replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown  # or a legend leaves it out


def ids(names: Collection[str], longest: int = LONGEST) -> Mapping[str, str]:
    """Labels of ids: their first characters, as many as tell them apart, and eight at least."""
    ordered = sorted(set(names))
    common = max((_alike(a, b) for a, b in pairwise(ordered)), default=0)
    length = max(SHORTEST_ID, common + 1)
    return {name: label(name[:length] if _is_id(name) else name, longest) for name in ordered}


def several(what: str, names: Iterable[str]) -> str:
    """``group billing``, or ``groups a, b, c and 4 more``."""
    ordered = sorted(set(names))
    if len(ordered) == 1:
        return f"{what} {label(ordered[0])}"
    more = f" and {len(ordered) - MOST_NAMED} more" if len(ordered) > MOST_NAMED else ""
    return f"{what}s {', '.join(label(name, LONGEST_OF_SEVERAL) for name in ordered[:MOST_NAMED])}{more}"


def title(what: str, names: Iterable[str], when: str) -> str:
    """``group billing: 2026-01-01 …``; on two lines if it would be wider than a picture."""
    line = f"{several(what, names)}: {when}"
    return line if len(line) <= LONGEST_TITLE else f"{several(what, names)}\n{when}"


def nth(every: int) -> str:
    """Words before "partition" where a picture shows only some."""
    if every == 1:
        return ""
    ending = "th" if every % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(every % 10, "th")
    return f"every {every}{ending} "


def _alike(a: str, b: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


def _is_id(name: str) -> bool:
    """Whether it is a query's id, as this package makes them."""
    return len(name) == 32 and set(name) <= set("0123456789abcdef")
