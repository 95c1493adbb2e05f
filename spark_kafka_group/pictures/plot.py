"""``plot``: pictures of a run, from the events of its members.

It is here and not beside the other commands, as pictures read files of events with the modules of the commands.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from spark_kafka_group.pictures import batch_timeline, canvas, committed_records, logged_run, owned_partitions
from spark_kafka_group.pictures.logged_run import Files, LoggedRun
from spark_kafka_group.text.foreign_text import printable
from spark_kafka_group.text.text_table import counted
from spark_kafka_group.tools.arguments import Commands, ToolError, UsageError, add_command

if TYPE_CHECKING:
    from spark_kafka_group.pictures.picture import Picture


def overview(files: Files, theme: str = "light") -> Picture:
    """Owners, batches and records of a run, one below the other, with one axis of time. The parameters and errors are
    those of :func:`spark_kafka_group.pictures.owners`."""
    return overview_of(logged_run.read(files, theme))


def overview_of(run: LoggedRun) -> Picture:
    rows_px = (owned_partitions.height_px(run), batch_timeline.height_px(run))
    figure, axes = canvas.canvas(run.theme, run.title, (*rows_px, canvas.LOW_PX, canvas.TALL_PX, canvas.LOW_PX))
    owned_partitions.draw(axes[0], run, named=False)
    batch_timeline.draw(axes[1], axes[2], run, named=False)
    committed_records.draw(axes[3], axes[4], run)
    return figure


SUMMARY = "draw a run from the events its members wrote"
DESCRIPTION = """\
Draws a run from files of events (a JSON object a line, as option eventLog makes
a query write them; one file of each query):

  owners   which member owned which partition when, and the generations
  batches  micro-batches from plan to commit, their durations, rebalances,
           replays, and members that were lost
  records  records that each member committed, and how many a second

A picture has all three, one below the other, or the one that --only names. It
is png, svg or pdf, as the name of the file ends.

Needs matplotlib, which the extra notebook has.
"""
PICTURES = {
    "owners": owned_partitions.owners_of,
    "batches": batch_timeline.batches_of,
    "records": committed_records.records_of,
}
FORMATS = ("png", "svg", "pdf")


def add_to(commands: Commands) -> None:
    parser = add_command(commands, "plot", SUMMARY, DESCRIPTION)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="events as JSON lines")
    parser.add_argument(
        "-o", "--output", required=True, type=Path, metavar="PICTURE", help="the file to write: .png, .svg or .pdf"
    )
    parser.add_argument("--only", choices=PICTURES, help="one picture instead of all")
    parser.add_argument("--dark", action="store_true", help="for a dark background")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    form = _format(args.output)
    found = logged_run.read(args.files, "dark" if args.dark else "light")
    draw = PICTURES[args.only] if args.only else overview_of
    try:
        picture = draw(found)
        picture.write(args.output, form)
    except ImportError as error:
        raise ToolError(str(error)) from error
    except OSError as error:
        raise ToolError(f"{args.output} cannot be written: {error}") from error
    width, height = picture.size_px
    members = len(found.members)
    if args.json:
        _print_json(args.output, picture.size_px, len(found.events), members, found.remarks)
    else:
        size = f"{width}x{height}, {counted(len(found.events), 'event')} of {counted(members, 'member')}"
        lines = [*(f"note: {remark}" for remark in found.remarks), f"{args.output}: {size}"]
        print("\n".join(map(printable, lines)))
    return 0


def _format(output: Path) -> str:
    form = output.suffix[1:].lower()
    if form not in FORMATS:
        raise UsageError(f"{output} must end with one of {', '.join(f'.{known}' for known in FORMATS)}")
    return form


def _print_json(output: Path, size_px: tuple[int, int], events: int, members: int, remarks: tuple[str, ...]) -> None:
    for remark in remarks:
        print(json.dumps({"kind": "note", "text": remark}))
    size = dict(zip(("width", "height"), size_px, strict=True))
    print(json.dumps({"kind": "picture", "file": str(output), **size, "events": events, "members": members}))
