"""A bar that is drawn in place by tqdm: how far a query or a batch read is, and how many tasks of jobs have ended."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TextIO

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from spark_kafka_group.text.foreign_text import printable
from spark_kafka_group.text.text_table import shortened
from spark_kafka_group.values.offsets import GROUP_KEY, offset_of_any_source

TERMINAL = "/dev/tty"  # the terminal of this process, wherever its output goes
NUMBERS = 56  # columns that the numbers of a bar take
SHORTEST_TITLE = 16
MISSING = "a bar needs tqdm: pip install tqdm, or install this package with the extra notebook"


@dataclass(frozen=True)
class RowCounts:
    """How far a query is."""

    rows: int = 0  # rows of the micro-batches that have ended
    lag: int = 0  # records between the end of the last one and the ends of the logs, as they were when it was planned

    @property
    def total(self) -> int:
        """Rows when the query has caught up."""
        return self.rows + self.lag

    def after(self, batches: Iterable[StreamingQueryProgress]) -> RowCounts:
        """As it is after these micro-batches, too."""
        rows, lag = self.rows, self.lag
        for batch in batches:
            rows += batch.numInputRows
            lag = lag_of(batch)
        return RowCounts(rows, lag)


def lag_of(batch: StreamingQueryProgress) -> int:
    """Records behind the ends of the logs when the batch was planned; 0 for a replayed batch, which has not looked."""
    return sum(_behind(source.endOffset, source.latestOffset) for source in batch.sources)


def generation_of(batch: StreamingQueryProgress) -> int | None:
    """The generation that planned the batch, of its first groupkafka source; None if it has none."""
    ends = (offset_of_any_source(source.endOffset) for source in batch.sources)
    return next((end[GROUP_KEY]["generation"] for end in ends if GROUP_KEY in end), None)


def _behind(end_offset: str, latest_offset: str) -> int:
    end, latest = offset_of_any_source(end_offset), offset_of_any_source(latest_offset)
    if GROUP_KEY not in end:
        return 0
    return sum(
        max(0, offset - end[topic][partition])
        for topic, partitions in latest.items()
        if topic != GROUP_KEY
        for partition, offset in partitions.items()
        if partition in end.get(topic, {})
    )


class Bar:
    """The rows read so far and in all, rows per second, the time to the end, and a note. A terminal that goes away ends
    the drawing, and not the read."""

    def __init__(self, made: Any) -> None:
        self._bar = made

    def show(self, counts: RowCounts, note: str) -> None:
        with self._drawing():
            self._end_at(counts.total)
            self._bar.set_postfix_str(note, refresh=False)
            if counts.rows > self._bar.n:  # otherwise the rate would be that of the time since the last call alone
                self._bar.update(counts.rows - self._bar.n)
            self._bar.refresh()

    def _end_at(self, total: int) -> None:
        """Let it be full at `total`, or without an end if that is 0. A notebook's bar keeps its first end by itself."""
        self._bar.total = total or None
        for part in getattr(getattr(self._bar, "container", None), "children", ()):
            if total and hasattr(part, "max"):
                part.max, part.bar_style, part.layout.width = total, "", None

    def write(self, line: str) -> None:
        """Print a line above it."""
        with self._drawing():
            self._bar.write(line, file=self._bar.fp)

    def close(self) -> None:
        """Leave it as it is."""
        with self._drawing():
            self._bar.close()

    @contextlib.contextmanager
    def _drawing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError):  # ValueError: its file is closed
            self._bar.disable = True  # or it would try again when it is collected


@contextlib.contextmanager
def bar(title: str, before: int = 0) -> Iterator[Bar | None]:
    """A bar while the block runs, and its last state afterwards; None where there is neither terminal nor notebook.
    `before`: rows that had been read when it began: they are in its count, and not in its rate. Raises ImportError when
    there is one, and tqdm is missing."""
    with contextlib.ExitStack() as stack:
        made = _made(printable(title), before, stack)
        drawn = None if made is None else Bar(made)
        if drawn is not None:
            stack.callback(drawn.close)
        yield drawn


def _made(title: str, before: int, stack: contextlib.ExitStack) -> Any:
    rows = {"unit": " rows", "unit_scale": True, "initial": before}
    if in_notebook():
        return _tqdm("tqdm.auto")(desc=title, **rows)
    terminal = _terminal(stack)
    if terminal is None:
        return None
    room = max(SHORTEST_TITLE, _columns(terminal) - NUMBERS)
    return _tqdm("tqdm")(desc=shortened(title, room), dynamic_ncols=True, file=terminal, **rows)


def _tqdm(module: str) -> Callable[..., Any]:
    import importlib

    try:
        made: Callable[..., Any] = importlib.import_module(module).tqdm
    except ImportError as error:
        raise ImportError(MISSING) from error
    return made


def _terminal(stack: contextlib.ExitStack) -> TextIO | None:
    """The terminal. spark-submit puts a pipe between it and the program, so the program asks for it by its name."""
    if sys.stderr.isatty():
        return sys.stderr
    try:
        terminal = open(TERMINAL, "w")  # noqa: SIM115 - the stack closes it
    except OSError:  # as in cron
        return None
    stack.callback(_close, terminal)
    return terminal


def _columns(terminal: TextIO) -> int:
    with contextlib.suppress(OSError, ValueError):
        return os.get_terminal_size(terminal.fileno()).columns or 80
    return 80


def _close(terminal: TextIO) -> None:
    with contextlib.suppress(OSError):  # it writes what it could not write before
        terminal.close()


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this process."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


class Tasks(NamedTuple):
    ended: int
    all: int


def of_stage(spark: SparkSession, job_group: str | None = None) -> Tasks | None:
    """Those of a stage that runs, of any job or of a job group, such as a query's run id. None where none runs, or over
    Spark Connect, which does not show it."""
    if not hasattr(spark, "_jsparkSession"):
        return None
    tracker = spark.sparkContext.statusTracker()
    jobs = tracker.getActiveJobsIds() if job_group is None else tracker.getJobIdsForGroup(job_group)
    active = set(tracker.getActiveStageIds())
    for job in sorted(jobs, reverse=True):
        info = tracker.getJobInfo(job)
        for stage in sorted(active.intersection(info.stageIds)) if info is not None else ():
            found = tracker.getStageInfo(stage)
            if found is not None:
                return Tasks(found.numCompletedTasks, found.numTasks)
    return None


EVERY_S = 0.5


@contextlib.contextmanager
def bar_of_batch(spark: SparkSession, title: str, records: int) -> Iterator[None]:
    """Show how many of the records have been read while the block runs; nothing without terminal or notebook. Spark
    counts tasks, so the bar estimates: the share of a stage's tasks that have ended, of all records. `records`: of the
    whole read. Raises ImportError when tqdm is missing."""
    with bar(title) as drawn:
        if drawn is None:
            yield
            return
        drawn.show(RowCounts(0, records), "")
        with _drawing(spark, drawn, records):
            yield
        drawn.show(RowCounts(records, 0), "" if records else "no new records")


@contextlib.contextmanager
def _drawing(spark: SparkSession, drawn: Bar, records: int) -> Iterator[None]:
    ended = threading.Event()

    def draw() -> None:
        most = 0
        with contextlib.suppress(Py4JError, OSError):  # the session was stopped
            while not ended.wait(EVERY_S):
                stage = of_stage(spark)
                if stage is not None:
                    most = max(most, records * stage.ended // stage.all)
                    drawn.show(RowCounts(most, records - most), f"{stage.ended} of {stage.all} tasks")

    thread = threading.Thread(target=draw, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
