"""Show a consumer group, set its offsets, check or draw a run, or run a job.

Each command has its own --help. Exit codes: 0 when it is done, 1 for an error
(one line on stderr says what to change), 2 for wrong arguments, 3 when verify
reports violations.

  python -m spark_kafka_group describe --bootstrap-server HOST:PORT

If the package is installed, groupkafka is short for python -m
spark_kafka_group.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import spark_kafka_group
from spark_kafka_group.errors import BrokerError, GroupKafkaError
from spark_kafka_group.pictures import plot
from spark_kafka_group.text.foreign_text import printable
from spark_kafka_group.tools import describe, group_records, jobs, reset, top, transactions, verify
from spark_kafka_group.tools.admin_connection import as_given
from spark_kafka_group.tools.arguments import Parser, UsageError

CONSOLE = "groupkafka"  # the command that an installed package adds to the bin/ of its environment
FAILED, MISUSED, INTERRUPTED = 1, 2, 130


def program() -> str:
    """How the commands were called."""
    return CONSOLE if Path(sys.argv[0]).name == CONSOLE else "python -m spark_kafka_group"


def parser() -> argparse.ArgumentParser:
    """All commands."""
    made = Parser(prog=program(), description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--version", action="version", version=f"groupkafka {spark_kafka_group.__version__}")
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in (group_records, describe, top, reset, transactions, verify, plot, jobs):
        command.add_to(commands)
    return made


class _OneLine(logging.Formatter):
    """Messages alone, which steer no terminal, and name the arguments of the command."""

    servers = "--bootstrap-server"

    def format(self, record: logging.LogRecord) -> str:
        return printable(as_given(super().format(record), self.servers))


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    # Warnings of kafka-python repeat what the error says.
    own = logging.StreamHandler()
    own.addFilter(logging.Filter("spark_kafka_group"))
    one_line = _OneLine()
    own.setFormatter(one_line)
    logging.basicConfig(handlers=[own])
    args = parser().parse_args(argv)
    one_line.servers = getattr(args, "bootstrap_server_as_written", one_line.servers)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except GroupKafkaError as error:
        # Of a connection that was made: the others are told in the command's words already.
        text = as_given(error, one_line.servers) if isinstance(error, BrokerError) else error
        print(f"{program()} {args.command}: {text}", file=sys.stderr)
        return MISUSED if isinstance(error, UsageError) else FAILED
    except BrokenPipeError:  # as of `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


if __name__ == "__main__":
    sys.exit(main())
