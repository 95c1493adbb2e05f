"""The live view of groups that ``top`` and ``describe --watch`` are: in place on a terminal, as lines elsewhere."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from spark_kafka_group.errors import GroupKafkaError
from spark_kafka_group.text.foreign_text import printable
from spark_kafka_group.text.text_table import clipped, counted, shortened, taken
from spark_kafka_group.tools import terminal
from spark_kafka_group.tools.admin_connection import as_given

L = TypeVar("L")

CLOSED_WITHIN_S = 1.0
LEAST_OF_NAMES = 8  # characters that a name keeps


@dataclass(frozen=True)
class ShownGroups(ABC):
    """What was found of groups, in the forms in which a view shows it."""

    name: str  # of the one group, which stands before the facts
    facts: tuple[str, ...]  # of the heading; the lag is the last
    problems: tuple[str | None, ...]  # which facts are missing, and why
    objects: tuple[dict[str, Any], ...]  # for JSON

    def heading(self, width: int) -> str:
        """Name and facts, in `width` columns if the lag alone has room there. The name is shortened for the facts'
        sake. Then facts go for the lag's sake, and then the name."""
        name, least = "", 0
        if self.name:
            name = printable(self.name)
            least = min(taken(name), LEAST_OF_NAMES) + len(": ")
        facts = list(self.facts)
        while len(facts) > 1 and least + taken(", ".join(facts)) > width:
            del facts[-2]
        summary = ", ".join(facts)
        room = width - taken(summary) - len(": ")
        return f"{shortened(name, room)}: {summary}" if name and least + taken(summary) <= width else summary

    @abstractmethod
    def for_screen(self, width: int) -> tuple[str, list[str]]:
        """A header, which may be empty, and the lines below it, of at most `width` columns."""

    @abstractmethod
    def as_text(self, at: float) -> str:
        """Lines for a pipe, with the time of day."""

    def as_json(self) -> str:
        """An object a line."""
        return "\n".join(map(json.dumps, self.objects))


@dataclass(frozen=True)
class Seen(Generic[L]):
    """What was found, the time of day, how long a look took, and why nothing newer was found."""

    found: L
    at: float
    took_s: float = 0.0
    problem: str | None = None


@dataclass(frozen=True)
class LiveView(Generic[L]):
    """What a command looks at, and how it is shown. `sort`, `sorts`: the order of the rows at the start, and all
    orders, which keys choose by their first letters."""

    look: Callable[[L | None], L]  # asks the brokers; what was found before is given
    shown: Callable[[L, str], ShownGroups]  # what was found, in one of the orders
    interval_s: float
    sort: str = ""
    sorts: tuple[str, ...] = ()
    unprinted: int = 0  # looks at the start that are not printed: rates take two
    once: bool = False  # whether a pipe gets one look only

    def looks(self, waited: Callable[[float], object] = time.sleep) -> Iterator[Seen[L]]:
        """What is found now, and again after each interval; a later look that fails is the problem of the one before.
        `waited`: waits so many seconds, and says whether the end was asked for."""
        seen = self._seen(None)
        yield seen
        while not waited(self.interval_s):
            try:
                seen = self._seen(seen.found)
            except GroupKafkaError as error:
                seen = replace(seen, problem=str(error))
            except Exception as error:  # noqa: BLE001 - or a screen would say that no broker answers
                seen = replace(seen, problem=f"{type(error).__name__}: {error}")
            yield seen

    def _seen(self, before: L | None) -> Seen[L]:
        started = time.monotonic()
        found = self.look(before)
        return Seen(found, time.time(), time.monotonic() - started)


def watch(view: LiveView[L], args: argparse.Namespace) -> int:
    """Show groups until the end is asked for; returns the exit code. Raises GroupKafkaError of the first look."""
    if view.once or args.json or not terminal.there_is_one():
        for seen in itertools.islice(view.looks(), view.unprinted, view.unprinted + 1 if view.once else None):
            groups = view.shown(seen.found, view.sort)
            text = "" if seen.problem is not None else groups.as_json() if args.json else groups.as_text(seen.at)
            print_found(text, groups.problems if seen.problem is None else [seen.problem], args)
        return 0
    return _show(view, args)


def print_found(text: str, problems: Iterable[str | None], args: argparse.Namespace) -> None:
    """Print what was found, and on stderr what could not be."""
    if text:
        print(text, flush=True)
    for problem in filter(None, problems):
        print(printable(as_given(problem, args.bootstrap_server_as_written)), file=sys.stderr, flush=True)


def _show(view: LiveView[L], args: argparse.Namespace) -> int:
    """Draw until the end; returns the exit code, or ends the process as a signal asks for it."""
    observer = Observer(view)
    screen = Screen(view, args.bootstrap_server, args.bootstrap_server_as_written)
    with terminal.Terminal() as drawn:
        observer.start(drawn.wake)
        while drawn.ended_by is None and not screen.ended:
            seen = observer.seen
            drawn.draw(*screen.lines(seen, view.shown(seen.found, screen.sort), time.time(), drawn.size()))
            screen.apply_keys(drawn.keys(1.0))
    closed = observer.close()
    if drawn.ended_by not in (None, signal.SIGINT):
        signal.signal(drawn.ended_by, signal.SIG_DFL)
        signal.raise_signal(drawn.ended_by)
    code = 0 if drawn.ended_by is None else 128 + drawn.ended_by
    if not closed:
        os._exit(code)  # a request waits for brokers, and nothing is to be cleaned up
    return code


class Observer(Generic[L]):
    """Looks once, and, when it has been started, again and again in a thread of its own. `seen`: the newest."""

    def __init__(self, view: LiveView[L]) -> None:
        self._ending = threading.Event()
        self._looks = view.looks(self._ending.wait)
        self.seen = next(self._looks)

    def start(self, tell: Callable[[], None]) -> None:
        """Begin; `tell` is called after each look, in the thread."""

        def run() -> None:
            for seen in self._looks:
                self.seen = seen
                tell()

        self._thread = threading.Thread(target=run, name="groupkafka-view", daemon=True)
        self._thread.start()

    def close(self) -> bool:
        """End; whether the thread has ended, which may wait for brokers."""
        self._ending.set()
        self._thread.join(CLOSED_WITHIN_S)
        return not self._thread.is_alive()


LATE_AFTER = 3  # so many intervals and times of a look without a new look, and the view says so
AND_MORE = "  …"  # what is left of the brokers' addresses in the first line where they have no room


class Screen:
    """The order of the rows, the first that is shown, and whether the end was asked for."""

    def __init__(self, view: LiveView[Any], servers: str, written: str = "--bootstrap-server") -> None:
        self.sort = view.sort
        self.ended = False
        self._view, self._servers, self._written = view, servers, written
        self._first = 0
        self._page = 1

    def apply_keys(self, keys: Iterable[str]) -> None:
        for key in keys:
            moved = {"up": -1, "down": 1, "page up": -self._page, "page down": self._page, " ": self._page}.get(key, 0)
            self._first = 0 if key == "home" else max(0, self._first + moved)
            self.sort = next((sort for sort in self._view.sorts if sort[0] == key.lower()), self.sort)
            self.ended = self.ended or key in ("q", "Q")

    def lines(
        self, seen: Seen[Any], groups: ShownGroups, now: float, size: tuple[int, int]
    ) -> tuple[list[str], int | None]:
        """Lines that fit, and the header's number, if any: cluster, how to go on, what is wrong, and what was found."""
        width, height = size
        header, rows = groups.for_screen(width)
        above = 4 if header else 3
        self._page = max(1, height - above)
        self._first = min(self._first, max(0, len(rows) - self._page))
        page = rows[self._first : self._first + self._page]
        head = [f"{_first_line(_clock(seen.at), groups, width)}  {self._servers}",
                self._how_to_go_on("row" if header else "line", len(page), len(rows)),
                as_given(self._problem(seen, groups, now), self._written), header.ljust(width)]  # fmt: skip
        lines = [clipped(line, width) for line in (*head[:above], *page)]
        return lines[:height], above - 1 if header else None

    def _how_to_go_on(self, thing: str, shown: int, count: int) -> str:
        which = counted(count, thing)
        if shown < count:
            which = f"{thing}s {self._first + 1:,}-{self._first + shown:,} of {count:,}"
        order = f", by {self.sort}" if self.sort else ""
        keys = "  ".join([*(f"{sort[0]} {sort}" for sort in self._view.sorts), "arrows", "q quit"])
        return f"{which}, every {self._view.interval_s:g} s{order}  ({keys})"

    def _problem(self, seen: Seen[Any], groups: ShownGroups, now: float) -> str:
        since = f"as of {_clock(seen.at)}"
        if seen.problem is not None:
            return f"{since}: {seen.problem}"
        late = now - seen.at
        if late > LATE_AFTER * (self._view.interval_s + seen.took_s):
            return f"{since}: no broker has answered for {late:.0f} s"
        return "; ".join(filter(None, groups.problems))


def _first_line(clock: str, groups: ShownGroups, width: int) -> str:
    """Time and heading; the heading alone where the lag has no room beside the time."""
    room = width - len(clock) - len("  ") - len(AND_MORE)
    heading = groups.heading(room)
    return f"{clock}  {heading}" if taken(heading) <= room else groups.heading(width)


def _clock(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%H:%M:%SZ")
