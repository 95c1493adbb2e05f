"""A command's connection to the cluster, by its arguments."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from spark_kafka_group.errors import AuthenticationError, BrokerError, BrokerTimeoutError, OptionError
from spark_kafka_group.offsets_topic.decoding import OFFSETS_TOPIC
from spark_kafka_group.options import OPTION_NAMES, Options
from spark_kafka_group.options.unsupported import UNSUPPORTED
from spark_kafka_group.tools.arguments import CLIENT_OPTIONS, ToolError
from spark_kafka_group.tools.few_records import LagAdmin
from spark_kafka_group.tools.properties import read_properties
from spark_kafka_group.wire.admin import GroupAdmin

T = TypeVar("T")

DEFAULT_CLIENT_ID = "groupkafka-tools"
_NAMES = "|".join(
    re.escape(name.removeprefix("kafka."))
    for name in sorted({*OPTION_NAMES, *UNSUPPORTED}, key=len, reverse=True)
    if name.startswith("kafka.")
)
_SETTING = re.compile(
    r"(?<![\w.-])(?P<set>(?:\bset )?)"
    rf"(?:(?<=option )kafka\.|kafka\.(?=(?:{_NAMES})(?!\w|-|:\d|\.\w)))(?P<name>[\w.]*\w)"
)
"""A setting of Kafka's by its name as an option. Hosts, groups and topics may begin with kafka., too."""


def connect(args: argparse.Namespace) -> GroupAdmin:
    """A connection to the cluster that the arguments name. Raises ToolError, BrokerError."""
    return connected(args, LagAdmin)


def connected(args: argparse.Namespace, make: Callable[[Options], T]) -> T:
    """Any client of the cluster that the arguments name; errors as of :func:`connect`."""
    given = {
        "kafka.bootstrap.servers": args.bootstrap_server,
        "kafka.client.id": DEFAULT_CLIENT_ID,
        "subscribe": OFFSETS_TOPIC,  # options have to name something to read
    }
    written = args.bootstrap_server_as_written
    if args.command_config is not None:
        given |= _settings(args.command_config)
    try:
        options = Options.parse(given)
    except OptionError as error:
        where = "" if args.command_config is None else f"{args.command_config}: "
        raise ToolError(where + as_given(error, written)) from error
    try:
        return make(options)
    except BrokerTimeoutError as error:
        raise ToolError(
            f"no broker answered at {args.bootstrap_server} within {options.connection.request_timeout_ms} ms: check "
            f"{written}, or raise request.timeout.ms in --command-config: {as_given(error, written)}"
        ) from error
    except BrokerError as error:
        if isinstance(error, AuthenticationError):
            raise AuthenticationError(as_given(error, written)) from error
        raise ToolError(as_given(error, written)) from error


def as_given(error: Exception | str, servers: str = "--bootstrap-server") -> str:
    """The text of an error, with arguments, and settings of --command-config, in place of the source's options.
    `servers`: the argument that names the brokers, as the user has written it."""
    text = str(error).replace("kafka.bootstrap.servers", servers)
    return _SETTING.sub(_of_the_file, text)


def _of_the_file(found: re.Match[str]) -> str:
    where = " in --command-config" if found["set"] else ""
    return f"{found['set']}{found['name']}{where}"


def _settings(path: Path) -> dict[str, str]:
    try:
        settings = read_properties(path, CLIENT_OPTIONS)
    except OptionError as error:
        raise ToolError(f"--command-config: {error}") from error
    return {f"kafka.{name}": value for name, value in settings.items()}
