"""Look into a consumer group from outside, set its offsets, or check a run.

Each command has its own --help. Exit codes: 0 when all is well, 1 when the
command could not do it (one line on stderr says what to change), 2 for wrong
arguments, 3 when verify reports violations.

  python -m spark_kafka_group describe --bootstrap-server HOST:PORT --group billing
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence

from spark_kafka_group.errors import GroupKafkaError
from spark_kafka_group.printable import printable
from spark_kafka_group.tools import describe, group_records, reset, verify
from spark_kafka_group.tools.command_errors import UsageError

PROGRAM = "python -m spark_kafka_group"
FAILED, MISUSED, INTERRUPTED = 1, 2, 130


def parser() -> argparse.ArgumentParser:
    """All commands."""
    made = argparse.ArgumentParser(
        prog=PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in (group_records, describe, reset, verify):
        command.add_to(commands)
    return made


class _OneLine(logging.Formatter):
    """Messages alone, which steer no terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    # kafka-python warns of much that the error says, too.
    own = logging.StreamHandler()
    own.addFilter(logging.Filter("spark_kafka_group"))
    own.setFormatter(_OneLine())
    logging.basicConfig(handlers=[own])
    args = parser().parse_args(argv)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except GroupKafkaError as error:
        print(f"{PROGRAM} {args.command}: {error}", file=sys.stderr)
        return MISUSED if isinstance(error, UsageError) else FAILED
    except BrokenPipeError:  # as of `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


if __name__ == "__main__":
    sys.exit(main())
