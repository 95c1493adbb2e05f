"""Run cells of the fault matrix: ``make faults``. What is not named runs all, and what was run is not run again."""

from __future__ import annotations

import argparse
import signal
import sys

from faults import cells, report
from faults.cells.registry import BOTH, CELLS
from faults.run import command_of, in_lanes, run_cells


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], metavar="CELL", help="cells or families; all if not given")
    parser.add_argument("--count", type=int, help="faults of each cell, in place of its own number")
    parser.add_argument("--minutes", type=int, help="storms of the cell everything, of about a minute each")
    parser.add_argument("--seed", type=int, help="drawn and printed if not given")
    parser.add_argument("--source", choices=BOTH, action="append", help="one of the two columns; both if not given")
    parser.add_argument("--fresh", action="store_true", help="count no earlier runs")
    parser.add_argument("--lanes", type=int, default=1, help="cells that run at a time")
    parser.add_argument("--no-report", action="store_true", help="keep the results, and write no tables and pictures")
    parser.add_argument("--list", action="store_true", help="list the cells, and run none")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what runs is ended in order
    families = {cell.family for cell in CELLS.values()}
    if unknown := [name for name in args.only if name not in CELLS and name not in families]:
        parser.error(f"no cell or family is named {', '.join(unknown)}: see --list")
    names = [name for name, cell in CELLS.items() if not args.only or {name, cell.family} & set(args.only)]
    if args.list:
        for name in names:
            print(f"{name:28} {CELLS[name].count:3} x {CELLS[name].what} ({', '.join(CELLS[name].sources)})")
        return 0
    sources = args.source or list(BOTH)
    if args.lanes > 1:
        names_given = ("count", "minutes", "seed")
        more = [f"--{name}={value}" for name in names_given if (value := getattr(args, name)) is not None]
        more += ["--fresh"] if args.fresh else []
        of_cells = [(name, source) for name in names for source in CELLS[name].sources if source in sources]
        failed = in_lanes([command_of(*one, *more) for one in of_cells], args.lanes)
    else:
        counts = dict.fromkeys(names, args.count) | ({"everything": args.minutes} if args.minutes else {})
        failed = run_cells(names, sources, counts, args.seed, args.fresh)
    if not args.no_report:
        report.write()
    return 1 if failed else 0


assert cells.FILES
if __name__ == "__main__":
    sys.exit(main())
