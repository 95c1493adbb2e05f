"""``top``: a live view of all groups, or of one."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable

from spark_kafka_group.text.foreign_text import printable
from spark_kafka_group.tools.admin_connection import connect
from spark_kafka_group.tools.arguments import (
    Commands,
    add_cluster_arguments,
    add_command,
    end_at_ctrl_c,
    group_name,
    seconds,
)
from spark_kafka_group.tools.formatting import instant
from spark_kafka_group.tools.top import terminal
from spark_kafka_group.tools.top.layout import SORTS, GroupsTable, of_groups, of_partitions
from spark_kafka_group.tools.top.rates import GroupLook, Observer, SeenGroups, look_again, looking_at
from spark_kafka_group.tools.top.terminal import Screen

SUMMARY = "watch lag and rates of all groups, or of one by topic-partition"
DESCRIPTION = """\
Shows groups with their lag in records, and refreshes in place:

  COMMIT/S   records that the group committed a second, mean of the last 30 s
  NEW/S      records that producers wrote a second to the partitions it commits
  DONE-IN    time until the lag is worked off at these rates; never, if it does
             not get less; - if that is not known yet
  QUERY      reader id of the query of this package that committed; with --group
             and its batch
  LAG-S      with --group: age of the first record that is not committed, in
             seconds

On a terminal: l, r and g sort by lag, rate and group; arrows and page keys move
the rows; q or Ctrl-C ends it. Elsewhere, and with --once or --json, it prints a
table each interval, after the first interval. It joins no group and commits
nothing.
"""
EVERY_S = 2.0


def add_to(commands: Commands) -> None:
    """Declare the command."""
    parser = add_command(commands, "top", SUMMARY, DESCRIPTION)
    add_cluster_arguments(parser)
    parser.add_argument(
        "--group", type=group_name, metavar="GROUP", help="one group, by its group.id, with its topic-partitions"
    )
    parser.add_argument("--sort", choices=SORTS, default=SORTS[0], help="order of the rows (default: %(default)s)")
    parser.add_argument(
        "--interval", type=seconds, default=EVERY_S, metavar="SECONDS",
        help="time between two looks (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--once", action="store_true", help="print one table, after an interval, and end")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Show groups until the end is asked for; returns the exit code."""
    tabled = of_groups if args.group is None else of_partitions
    end_at_ctrl_c()
    with connect(args) as admin:
        look_at = looking_at(args.group)
        first = look_at(admin)
        if args.once or args.json or not terminal.there_is_one():
            _print_tables(args, lambda: look_at(admin), first, tabled)
            return 0
        code, closed = _show(args, lambda: look_at(admin), first, tabled)
        if not closed:
            os._exit(code)  # a request waits for brokers, and nothing is to be cleaned up
        return code


def _print_tables(
    args: argparse.Namespace,
    look: Callable[[], GroupLook],
    first: GroupLook,
    tabled: Callable[[tuple[GroupLook, ...], str], GroupsTable],
) -> None:
    seen = SeenGroups((first,), time.time())
    while True:
        time.sleep(args.interval)
        seen = look_again(seen, look)
        if seen.problem is None:
            _print(args, seen, tabled(seen.looks, args.sort))
        problem = seen.problem or seen.looks[-1].problem
        if problem:
            print(printable(problem), file=sys.stderr, flush=True)
        if args.once:
            return


def _print(args: argparse.Namespace, seen: SeenGroups, table: GroupsTable) -> None:
    if args.json:
        print(*filter(None, [table.as_json()]), sep="", flush=True)
    else:
        summary = table.heading(sys.maxsize)
        print(f"{instant(seen.at * 1000)}  {summary}\n{table.whole()}\n", flush=True)


def _show(
    args: argparse.Namespace,
    look: Callable[[], GroupLook],
    first: GroupLook,
    tabled: Callable[[tuple[GroupLook, ...], str], GroupsTable],
) -> tuple[int, bool]:
    """Draw until the end; returns the exit code, and whether no request waits any more."""
    with terminal.Terminal() as drawn:
        observer = Observer(look, first, args.interval, drawn.wake)
        screen = Screen(args.bootstrap_server, args.interval, args.sort)
        while drawn.ended_by is None and not screen.ended:
            seen = observer.seen
            drawn.draw(*screen.lines(seen, tabled(seen.looks, screen.sort), time.time(), drawn.size()))
            screen.apply_keys(drawn.keys(1.0))
    closed = observer.close()
    if drawn.ended_by in (None, signal.SIGINT):
        return 0 if drawn.ended_by is None else 128 + signal.SIGINT, closed
    signal.signal(drawn.ended_by, signal.SIG_DFL)
    signal.raise_signal(drawn.ended_by)
    return 128 + drawn.ended_by, closed
