"""The connection that a command's arguments ask for."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from spark_kafka_group.errors import BrokerTimeoutError, OptionError
from spark_kafka_group.offsets_topic import OFFSETS_TOPIC
from spark_kafka_group.options import Options
from spark_kafka_group.tools.arguments import CLIENT_OPTIONS
from spark_kafka_group.tools.errors import ToolError
from spark_kafka_group.wire.admin import GroupAdmin

DEFAULT_CLIENT_ID = "groupkafka-tools"


def connect(args: argparse.Namespace) -> GroupAdmin:
    """A connection to the cluster that the arguments name.

    Raises
    ------
    ToolError
        When the arguments are wrong, or nobody answers.
    BrokerError
    """
    given = {
        "kafka.bootstrap.servers": args.bootstrap_server,
        "kafka.client.id": DEFAULT_CLIENT_ID,
        "subscribe": OFFSETS_TOPIC,  # options have to name something to read
    }
    if args.command_config is not None:
        given |= {f"kafka.{name}": value for name, value in read_properties(args.command_config).items()}
    try:
        options = Options.parse(given)
    except OptionError as error:
        text = str(error).replace("kafka.bootstrap.servers", "--bootstrap-server")
        raise ToolError(text.replace("kafka.", f"{args.command_config}: ", 1)) from error
    try:
        return GroupAdmin(options)
    except BrokerTimeoutError as error:
        raise ToolError(
            f"no broker answered at {args.bootstrap_server} within {options.request_timeout_ms} ms: check "
            f"--bootstrap-server, or raise request.timeout.ms in --command-config"
        ) from error


def read_properties(path: Path) -> dict[str, str]:
    """Settings of a Java properties file, as far as connections take them.

    Raises
    ------
    ToolError
        When the file cannot be read, or has a setting that would be without effect.
    """
    found = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ToolError(f"--command-config {path} cannot be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text or text[0] in "#!":
            continue
        setting = re.fullmatch(r"([^\s=:]+)\s*[=:]\s*(.*)", text)
        if setting is None:
            raise ToolError(f"{path}:{number}: {text!r} is not name=value")
        name, value = setting.groups()
        if name not in CLIENT_OPTIONS:
            raise ToolError(
                f"{path}:{number}: {name} is not supported, only {', '.join(CLIENT_OPTIONS)} are: remove it"
            )
        found[name] = value
    return found
