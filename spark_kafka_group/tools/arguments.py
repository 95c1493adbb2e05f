"""Arguments that commands have in common."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from spark_kafka_group.options import parsing

Commands = Any
"""The result of ``ArgumentParser.add_subparsers``."""

CLIENT_OPTIONS = ("client.id", "request.timeout.ms", "security.protocol", "sasl.", "ssl.")
"""Settings of a connection, by the names of Kafka's consumer; a dot at the end stands for all that begin so."""


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
        required=True,
        metavar="HOST:PORT[,HOST:PORT...]",
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
