"""python -m spark_kafka_group.testing start | produce | stop | status: a broker with records, for trying things out."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from spark_kafka_group.testing.cluster import KafkaCluster
from spark_kafka_group.testing.download import VERSION, cache_directory, writable
from spark_kafka_group.testing.node import wait_until
from spark_kafka_group.testing.produce import PARTITIONS, VALUES, produce
from spark_kafka_group.text.foreign_text import AsWritten

COMMAND = "python -m spark_kafka_group.testing"
# Exit codes, as those of systemctl status.
SOME_DOWN = 1
NOT_RUNNING = 3
OLDEST = (2, 8, 0)
HIGHEST_PORT = 65535 - 2  # three nodes take it and the next two


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument(
        "--state", type=Path, default=None, help="file that says which broker runs (default: in the cache)"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    _add_start(commands.add_parser("start", help="start Kafka and print its bootstrap servers"))
    _add_produce(commands.add_parser("produce", help="send records: order 0, order 1, ...; makes the topic if needed"))
    commands.add_parser("stop", help="stop Kafka; its topics and groups go, unless start had a --directory")
    commands.add_parser(
        "status", help=f"print which nodes run; exit code {NOT_RUNNING} if none does, {SOME_DOWN} if some do not"
    )
    return parser.parse_args(argv)


def _add_start(start: argparse.ArgumentParser) -> None:
    start.add_argument("--nodes", type=int, choices=(1, 3), help="default: 1")
    start.add_argument("--version", type=version, help=f"Kafka's, from 2.8.0 on (default: {VERSION})")
    start.add_argument(
        "--port",
        type=_whole_from(1, HIGHEST_PORT),
        help="port of the first node; others take the next ports (default: free ports)",
    )
    start.add_argument(
        "--properties",
        type=Path,
        help="file of broker settings; brokers make a topic when a record is sent to it, unless it says otherwise",
    )
    start.add_argument(
        "--directory", type=Path, help="keep data here (default: a temporary directory, removed by stop)"
    )


def _add_produce(records: argparse.ArgumentParser) -> None:
    records.add_argument("--topic", required=True)
    records.add_argument("--records", type=_whole_from(0), default=1000, help="how many (default: %(default)s)")
    records.add_argument(
        "--values", choices=sorted(VALUES), default="text", help="json: objects (default: %(default)s)"
    )
    records.add_argument(
        "--partitions", type=_whole_from(1), help=f"of the topic, which is made with them (default: {PARTITIONS})"
    )
    records.add_argument(
        "--bootstrap-servers",
        "--bootstrap-server",
        action=AsWritten,
        metavar="HOST:PORT",
        help="brokers (default: those of start)",
    )


def version(text: str) -> str:
    """A version of Kafka that clusters start, as an argument."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", text) or tuple(map(int, text.split("."))) < OLDEST:
        raise argparse.ArgumentTypeError(f"{text} is no version of Kafka from 2.8.0 on, such as {VERSION}")
    return text


def _whole_from(lowest: int, highest: int | None = None) -> Callable[[str], int]:
    to = f"to {highest}" if highest else "on"

    def whole(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", text) or not lowest <= int(text) <= (highest or int(text)):
            raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from {lowest} {to}")
        return int(text)

    return whole


def read_properties(path: Path | None) -> dict[str, str]:
    """A Java properties file, as far as brokers' settings need it."""
    try:
        lines = path.read_text().splitlines() if path else []
    except OSError as error:
        raise RuntimeError(f"--properties {path} cannot be read: {error.strerror}. Name a file of settings") from error
    pairs = [line.split("=", 1) for line in lines if "=" in line and not line.lstrip().startswith("#")]
    return {name.strip(): value.strip() for name, value in pairs}


def runs(pid: int, directory: str) -> bool:
    """Whether that process is the node started in `directory`, and not another with its number."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        return b"kafka.Kafka" in command and os.readlink(f"/proc/{pid}/cwd").startswith(directory)
    except OSError:
        return False


def living(state: dict[str, Any]) -> list[int]:
    """Process ids of the nodes that run."""
    return [pid for pid in state.get("pids", []) if runs(pid, state["directory"])]


def start(args: argparse.Namespace, file: Path, state: dict[str, Any]) -> int:
    alive = living(state)
    if alive:
        return started_before(args, state, len(alive))
    clean(state)  # after a reboot, or a kill -9
    writable(file.parent)
    nodes = args.nodes or 1
    ports = [args.port + n for n in range(nodes)] if args.port else None
    directory = args.directory.resolve() if args.directory else None
    # Topics are made by their first record, which is Kafka's own default: producers would wait for a minute.
    settings = {"auto.create.topics.enable": "true"} | read_properties(args.properties)
    cluster = KafkaCluster(nodes, settings, directory, ports, args.version or VERSION)
    cluster.start()
    state = {
        "pids": cluster.detach(),
        "bootstrap_servers": cluster.bootstrap_servers,
        "directory": str(cluster.directory),
        "temporary": directory is None,
        "version": cluster.version,
        "properties": _resolved(args.properties),
    }
    file.write_text(json.dumps(state))
    kept = f"keeps its data in {directory}" if directory else "removes its topics and groups"
    print(f"Kafka {cluster.version} runs; `{COMMAND} stop` ends it and {kept}", file=sys.stderr)
    print(cluster.bootstrap_servers)
    return 0


def started_before(args: argparse.Namespace, state: dict[str, Any], alive: int) -> int:
    """Print where Kafka runs, if that is what was asked for."""
    nodes, servers = len(state["pids"]), state["bootstrap_servers"]
    if alive < nodes:
        print(f"some nodes are down: stop the others first: {COMMAND} stop", file=sys.stderr)
        return SOME_DOWN
    first_port = int(servers.partition(",")[0].rpartition(":")[2])
    asked = {
        "--nodes": (args.nodes, nodes),
        "--version": (args.version, state.get("version")),
        "--port": (args.port, first_port),
        "--properties": (_resolved(args.properties), state.get("properties")),
        "--directory": (_resolved(args.directory), state["directory"]),
    }
    other = [name for name, (wanted, running) in asked.items() if wanted not in (None, running)]
    if other:
        print(
            f"Kafka runs already at {servers}, started without this {other[0]}: stop it first (`{COMMAND} stop`), or "
            f"leave {other[0]} out. A second one needs a --state of its own",
            file=sys.stderr,
        )
        return SOME_DOWN
    print("already running", file=sys.stderr)
    print(servers)
    return 0


def _resolved(path: Path | None) -> str | None:
    return str(path.resolve()) if path else None


def clean(state: dict[str, Any]) -> None:
    """Remove the data of nodes that no longer run, unless their directory was given."""
    if state.get("temporary"):
        shutil.rmtree(state["directory"], ignore_errors=True)


def stop(file: Path, state: dict[str, Any]) -> int:
    pids = living(state)
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    try:
        wait_until(lambda: not living(state), within=30)
    except TimeoutError:
        for pid in living(state):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not living(state), within=30)
    clean(state)
    file.unlink(missing_ok=True)
    if not pids:
        print("nothing was running")
        return 0
    kept = "its topics and groups are removed" if state["temporary"] else f"its data stay in {state['directory']}"
    print(f"stopped {len(pids)} node{'s' * (len(pids) > 1)}; {kept}")
    return 0


def status(state: dict[str, Any]) -> int:
    pids = state.get("pids", [])
    alive = living(state)
    for number, (pid, server) in enumerate(zip(pids, state.get("bootstrap_servers", "").split(","), strict=False), 1):
        print(f"node {number}: {server} pid {pid} {'up' if pid in alive else 'down'}")
    if not alive:
        print("not running")
        return NOT_RUNNING
    return 0 if len(alive) == len(pids) else SOME_DOWN


def send(args: argparse.Namespace, state: dict[str, Any]) -> int:
    servers = args.bootstrap_servers or (living(state) and state["bootstrap_servers"])
    if not servers:
        raise RuntimeError(
            f"no broker runs here: start one with `{COMMAND} start`, or name one with --bootstrap-servers"
        )
    argument = getattr(args, "bootstrap_servers_as_written", "--bootstrap-servers")
    produce(servers, args.topic, args.records, argument, args.values, args.partitions)
    print(f"{args.records} records are in topic {args.topic} at {servers}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(argv)
    try:
        file = (args.state or cache_directory()) / "running.json"
        state = json.loads(file.read_text()) if os.path.exists(file) else {}
        match args.command:
            case "start":
                return start(args, file, state)
            case "produce":
                return send(args, state)
            case "stop":
                return stop(file, state)
            case _:
                return status(state)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return SOME_DOWN


if __name__ == "__main__":
    sys.exit(main())
