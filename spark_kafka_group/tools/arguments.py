"""Arguments that commands have in common, and how commands end: by an error's sentence, or by Ctrl-C."""

from __future__ import annotations

import argparse
import difflib
import math
import os
import re
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from spark_kafka_group.errors import GroupKafkaError
from spark_kafka_group.options import parsing
from spark_kafka_group.text.foreign_text import AsWritten

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
Commands = Any  # the result of ``ArgumentParser.add_subparsers``

LONGEST_INTERVAL_S = 86_400
CLIENT_OPTIONS = ("client.id", "request.timeout.ms", "security.protocol", "sasl.", "ssl.")
"""Settings of a connection, by the names of Kafka's consumer; a dot at the end stands for all that begin so."""


class Parser(argparse.ArgumentParser):
    """One that names the argument that is misspelt, where argparse names only the one that is missing."""

    _given: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._given = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        known = OPTION.findall(self.format_help())
        for given in self._given:
            name = given.partition("=")[0]
            if name.startswith("--") and not any(one.startswith(name) for one in known):
                nearest = difflib.get_close_matches(name, known, 1)
                if nearest:
                    message = f"{name} is not known; the nearest is {nearest[0]}"
                    break
        super().error(message)


def add_command(commands: Commands, name: str, summary: str, description: str) -> argparse.ArgumentParser:
    """A command with ``--json``, which all have."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=summary, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object a line, for machines")
    return parser


def add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that name a cluster, in the spelling of Kafka's tools and in that of its clients."""
    parser.add_argument(
        "--bootstrap-server",
        "--bootstrap-servers",
        action=AsWritten,
        required=True,
        metavar="HOST:PORT,...",
        help="brokers to ask for the cluster, comma-separated",
    )
    parser.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="a Java properties file with settings of the connection: client.id, request.timeout.ms, "
        "security.protocol, sasl.*, ssl.*",
    )


def add_group_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that name a group of a cluster."""
    add_cluster_arguments(parser)
    parser.add_argument(
        "--group", required=True, type=group_name, metavar="GROUP", help="the consumer group, by its group.id"
    )


def group_name(text: str) -> str:
    """A group's name, for argparse."""
    try:
        parsing.name(text)
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError("must be text in the terminal's encoding") from None
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def seconds(text: str) -> float:
    """A time between two looks, for argparse."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number <= LONGEST_INTERVAL_S:
        raise argparse.ArgumentTypeError(f"{text!r} must be seconds, above 0 and up to {LONGEST_INTERVAL_S}")
    return number


class ToolError(GroupKafkaError):
    """Raised when a command fails; the text says what to change."""


class UsageError(ToolError):
    """Raised when arguments contradict each other in a way that argparse does not see."""


def end_at_ctrl_c() -> None:
    """End the process at once: nothing is to be cleaned up, and a KeyboardInterrupt was seen to have no effect."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(128 + number))
