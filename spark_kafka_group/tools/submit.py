"""Functions for programs that spark-submit runs: those in jobs/, and your own."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.util import default_api_mode

from spark_kafka_group.errors import OptionError
from spark_kafka_group.live.bar import RowCounts, bar
from spark_kafka_group.live.watch import Batches, line, note, rows_and_lag
from spark_kafka_group.options import OPTION_NAMES, parsed_each
from spark_kafka_group.options.producing import SINK_DECLARED
from spark_kafka_group.options.sink_options import SinkOptions
from spark_kafka_group.spark.installation import require_found
from spark_kafka_group.text.foreign_text import AsWritten
from spark_kafka_group.tools import ending, last_line
from spark_kafka_group.tools.arguments import Parser
from spark_kafka_group.tools.jobs import settings
from spark_kafka_group.tools.properties import read_properties

SOCKETS = "spark.python.unix.domain.socket.enabled"
SOCKETS_FOLDER = "spark.python.unix.domain.socket.dir"
REDACTION = "spark.sql.redaction.options.regex"
SECRET = "(?i)url|user.info|ssl.keystore.key"
"""Names of options that plans hide, beside passwords, secrets and tokens."""
LONGEST_FOLDER = 60  # bytes. The path of a socket has 43 more, and at most 103 in all on macOS, 107 on Linux.
OF_CONNECTIONS = ("connection", "security")  # sections of options that source and sink share
OF_EXECUTORS = ("spark.executor.defaultJavaOptions", "spark.executor.extraJavaOptions")
LOG, SPARKS_LOG = "log4j2.properties", "log4j2-defaults.properties"


def session(name: str) -> SparkSession:
    """Spark, with two settings unless its configuration has them: Unix domain sockets to its Python workers, as small
    tasks are quicker, and no secret in the plans that it shows.

    Raises
    ------
    WorkersPythonError
        When Spark's workers cannot import this package.
    """
    builder = SparkSession.builder.appName(name)
    if "SPARK_REMOTE" not in os.environ:  # a server of Spark Connect has its configuration already
        _start_jvm()
        # From here on SparkConf has spark-submit's configuration.
        own = sockets_to_workers(SparkConf().get, _temporary_folder())
        own[REDACTION] = SparkConf().get(REDACTION, SECRET)
        for setting, value in own.items():
            builder = builder.config(setting, value)
        if not _by_connect():
            SparkContext.getOrCreate(SparkConf().setAppName(name).setAll(list(own.items())))
        ending.take_signals()  # the context has taken Ctrl-C, and the rest takes seconds
    made = builder.getOrCreate()
    require_found(made)
    if hasattr(made, "_jsparkSession"):
        _log_in_lines(made.sparkContext._jvm)
    return made


def sockets_to_workers(configured: Callable[[str, str], str | None], temporary: str) -> dict[str, str]:
    """Settings for Unix domain sockets to Spark's Python workers, beside those that are `configured`.

    Spark makes them in Java's folder for temporary files, here `temporary`, whose path may be too long for a socket.
    That of executors may be another one, as Java's options say. On YARN it is in the container's, whose path alone has
    some hundred characters.
    """
    settings = {SOCKETS: configured(SOCKETS, "") or "true"}
    options = " ".join(configured(setting, "") or "" for setting in OF_EXECUTORS)
    folders = [temporary, *re.findall(r"-Djava\.io\.tmpdir=[\"']?([^\s\"']+)", options)]
    long = configured("spark.master", "") == "yarn" or max(len(os.fsencode(f)) for f in folders) > LONGEST_FOLDER
    folder = configured(SOCKETS_FOLDER, "") or ("/tmp" if long else "")
    return settings | ({SOCKETS_FOLDER: folder} if folder else {})


def _temporary_folder() -> str:
    """Java's."""
    jvm: Any = SparkContext._jvm
    return str(jvm.java.lang.System.getProperty("java.io.tmpdir"))


def _by_connect() -> bool:
    """Whether pyspark starts a server of Spark Connect here, which it refuses where there is a context already."""
    mode = os.environ.get("SPARK_API_MODE", "").lower() or default_api_mode()
    return mode == "connect"


def _start_jvm() -> None:
    """Start Spark's JVM, unless there is one; end it where a signal interrupts that, as nobody else knows it."""
    before = _children(os.getpid())
    try:
        SparkContext._ensure_initialized()
    except BaseException:
        for pid in _children(os.getpid()) - before:
            _end(pid)
        raise


def _end(pid: int) -> None:
    """Kill a process and those that it has started: a script starts a Java that starts Spark's."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)  # so that it starts no more
        for child in _children(pid):
            _end(child)
        os.kill(pid, signal.SIGKILL)


def _children(parent: int) -> set[int]:
    """Processes that a process has started, where the system shows them."""
    pids: list[str] = []
    for file in Path(f"/proc/{parent}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended meanwhile
            pids += file.read_text().split()
    return set(map(int, pids))


def _log_in_lines(jvm: Any) -> None:
    """Have Spark log as conf/log4j2.properties says, if it logs as it does by default."""
    log4j = jvm.org.apache.logging.log4j
    source = log4j.LogManager.getContext(False).getConfiguration().getConfigurationSource()
    if SPARKS_LOG in str(source.getLocation()):
        log4j.core.config.Configurator.reconfigure(jvm.java.io.File(str(settings()[LOG])).toURI())


def parser(doc: str, *, group: str | None = None) -> argparse.ArgumentParser:
    """The arguments that choose brokers, group, topics and options.

    Parameters
    ----------
    doc
        The program's docstring, whose first line describes it.
    group
        Help for ``--group`` where it may be left out.
    """
    made = Parser(description=doc.splitlines()[0])
    made.add_argument(
        "--bootstrap-servers", "--bootstrap-server", action=AsWritten, required=True, help="brokers, host:port,..."
    )
    made.add_argument("--group", required=group is None, help=group or "consumer group")
    made.add_argument("--topics", required=True, help="topics, comma-separated")
    made.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any option of the source; may be repeated. Not for passwords: a command line is in ps and in Spark's "
        "event log",
    )
    made.add_argument(
        "--options-file",
        type=Path,
        metavar="FILE",
        help="a Java properties file with options of the source, for example kafka.sasl.jaas.config; --option takes "
        "precedence",
    )
    made.add_argument("--progress", action="store_true", help="draw a bar with rows, rate, lag and the time to the end")
    return made


def options(args: argparse.Namespace, **more: str) -> dict[str, str]:
    """The source's options by the arguments of :func:`parser`. ``--option`` takes precedence over ``--options-file``,
    which takes precedence over `more`.

    Raises
    ------
    SystemExit
        When an option is unknown or malformed, the file is not as it has to be, or an ``--option`` is not NAME=VALUE.
        Values that may be secret are not shown.
    """
    named = {
        "kafka.bootstrap.servers": args.bootstrap_servers, "kafka.group.id": args.group, "subscribe": args.topics,
    }  # fmt: skip
    others = [*more.items(), *_of_file(args.options_file).items(), *map(_pair, args.option)]
    found = _one_each([*named.items(), *others])
    replaced = {name.lower() for name, _ in others}
    last_line.given_as({name: written for name, written in _written(args).items() if name not in replaced})
    try:
        parsed_each(found)
    except OptionError as error:
        raise SystemExit(last_line.as_given(str(error))) from None
    return found


def _one_each(options: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The last of the options whose names differ in case only: they are one option."""
    return dict({name.lower(): (name, value) for name, value in options}.values())


def add_sink_option(parser: argparse.ArgumentParser) -> None:
    """Add the argument with which users give options of a groupkafka sink."""
    parser.add_argument(
        "--sink-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any option of the sink; may be repeated. It connects as the source does unless it is given other options",
    )


def sink_options(args: argparse.Namespace, **more: str) -> dict[str, str]:
    """The options of a groupkafka sink beside the source: the same brokers and security, with `more`, and with
    ``--sink-option``, which takes precedence.

    Parameters
    ----------
    args
        With the ``options`` of the source.

    Raises
    ------
    SystemExit
        When an option is unknown or malformed, or a ``--sink-option`` is not NAME=VALUE.
    """
    shared = {n: v for n, v in args.options.items() if SINK_DECLARED.get(n.lower(), ("",))[0] in OF_CONNECTIONS}
    own = [_pair(option, "--sink-option") for option in args.sink_option]
    options = _one_each([*shared.items(), *more.items(), *own])
    try:
        SinkOptions.parse(options)
    except OptionError as error:
        raise SystemExit(f"the sink: {last_line.as_given(str(error))}") from None
    return options


def _written(args: argparse.Namespace) -> dict[str, str]:
    servers = getattr(args, "bootstrap_servers_as_written", "--bootstrap-servers")
    return {"kafka.bootstrap.servers": servers, "kafka.group.id": "--group", "subscribe": "--topics"}


def _of_file(path: Path | None) -> dict[str, str]:
    try:
        return {} if path is None else read_properties(path, OPTION_NAMES)
    except OptionError as error:
        raise SystemExit(f"--options-file: {error}") from None


def _pair(option: str, argument: str = "--option") -> tuple[str, str]:
    name, equals, value = option.partition("=")
    if not equals:
        raise SystemExit(f"{argument} takes NAME=VALUE")
    return name, value


def follow(
    query: StreamingQuery, described: Callable[[StreamingQueryProgress], str] = rows_and_lag, progress: bool = False
) -> None:
    """Print a line for each micro-batch with records until the query ends; Ctrl-C stops it.

    Parameters
    ----------
    described
        Returns the rest of a line, behind the numbers of batch and generation: rows, rate and lag by default.
    progress
        Draw a bar below the lines as well, where there is a terminal.

    Raises
    ------
    ImportError
        When `progress` is wanted and tqdm is missing.
    """
    batches, counts = Batches(query), RowCounts()
    with bar(query.name or "query") if progress else contextlib.nullcontext() as drawn:
        try:
            ended = False
            while not ended:
                ended = bool(query.awaitTermination(1))
                new = batches.ended()
                counts = counts.after(new)
                for batch in new:
                    (print if drawn is None else drawn.write)(line(batch, described(batch)))
                sys.stdout.flush()
                if drawn is not None:
                    drawn.show(counts, note(query, counts))
        except KeyboardInterrupt:
            query.stop()
