"""How a program with queries ends: with one line, and with the exit code that shells expect."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NamedTuple

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import SparkContext, SparkFiles
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.utils import is_remote

from spark_kafka_group.errors import WorkersPythonError
from spark_kafka_group.spark.installation import require_found
from spark_kafka_group.text.foreign_text import parsed
from spark_kafka_group.tools import last_line
from spark_kafka_group.tools.last_line import (
    JVM_ENDED,
    as_given,
    first_line,
    jvm_process,
    left_connection,
    print_last,
    query_of,
    sentence,
)
from spark_kafka_group.tools.transactions import abort_planned, planned_writes
from spark_kafka_group.values.files import READERS_FOLDER, read_if_locked

ENDING = (signal.SIGINT, signal.SIGTERM)
INTERRUPT = signal.SIGCONT
"""Interrupts the main thread, see _Block._watch. Users end no program with it: two signals of one number may arrive as
one. By default it ends no program either, if it comes late. Libraries written in Go keep SIGURG for themselves."""
OF_A_JOB = "PYSPARK_GATEWAY_PORT"
"""Environment variable of a program that a JVM has started: spark-submit's. Otherwise Python starts the JVM."""
IN_A_HURRY_S = 1.0
"""A second Ctrl-C that comes later than this ends the program at once. One Ctrl-C may arrive twice, see _Forwarding."""
AGAIN_AFTER_S = 0.05
LEAVES_S = 10.0
STOPS_S = 60.0


class Stopped(SystemExit):
    """Raised in the main thread by Ctrl-C or SIGTERM; its code is what shells expect."""


def orderly(*groups: str) -> contextlib.AbstractContextManager[None]:
    """A block that ends with one line on stderr if Ctrl-C, SIGTERM or an error ends it.

    ::

        with submit.orderly("billing"):
            query = ....start()
            query.awaitTermination()

    Queries that run are stopped, and leave their groups, and the session ends. docs/getting-started.md has the line and
    the exit code of each end. With Spark Connect a query that the program does not wait for goes on in the server.

    Make the session before the block, or with :func:`spark_kafka_group.submit.session` inside it: pyspark takes Ctrl-C
    for itself whenever it makes one.

    Parameters
    ----------
    groups
        Consumer groups of the program, for the line.

    Raises
    ------
    SystemExit
        In place of all other errors.
    """
    return _Block(groups)


def take_signals() -> None:
    """Have an :func:`orderly` block, if there is one, get the signals that Spark has taken for itself."""
    if _Block.current is not None:
        _Block.current.take_signals()


class _Block(contextlib.AbstractContextManager[None]):
    current: _Block | None = None

    def __init__(self, groups: tuple[str, ...]) -> None:
        self._groups = groups
        self._before: dict[int, Any] = {}
        self._hook = sys.unraisablehook
        self._came_s: float | None = None
        self._again: threading.Timer | None = None
        self._lost: Stopped | None = None
        self._watched: subprocess.Popen[bytes] | None = None
        self._ended: subprocess.Popen[bytes] | None = None
        self._interrupted: Any = None  # closed with the program: Spark's JVM would log that nobody takes its answer
        self._said = False  # that the JVM has ended

    def __enter__(self) -> None:
        self._before = {number: signal.getsignal(number) for number in (*ENDING, INTERRUPT)}
        self._hook, sys.unraisablehook = sys.unraisablehook, self._swallowed
        _Block.current = self
        try:
            self.take_signals()
            _require_workers()  # seconds, in which Ctrl-C is likely: Spark starts its first Python
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise

    def take_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # as in a notebook's thread: Python lets no other one have them
        for number in ENDING:
            signal.signal(number, self._came)
        if self._before[INTERRUPT] is not None:  # a handler in C, from before Python
            signal.signal(INTERRUPT, self._noticed)
        if OF_A_JOB in os.environ:
            SparkContext._ensure_initialized()
        if SparkContext._gateway is not None:
            _forward(SparkContext._gateway)
            self._watch(jvm_process())

    def _watch(self, jvm: subprocess.Popen[bytes] | None) -> None:
        """See that the block ends when the JVM has, which this program has started.

        1. A thread of the JVM starts a command. 2. The JVM is killed. Java's helper process for the command has copies
        of its connections, and may wait for ever (`driver/process`). 3. The main thread would wait for an answer.

        A program may also end its JVM itself, and perhaps start another one: that is no end of the block. Nor is it
        where the program catches what is raised: it is interrupted again only where it waits for the JVM.
        """
        if jvm is not None and jvm is not self._watched:
            self._watched = jvm
            threading.Thread(target=self._end_with, args=(jvm,), name="groupkafka-jvm", daemon=True).start()

    def _end_with(self, jvm: subprocess.Popen[bytes]) -> None:
        if jvm.wait() == 0:
            return
        self._ended = jvm  # an end by a signal does not ask it any more, from here on
        time.sleep(last_line.NOTICED_S)  # its connections end with it, but for that
        self._said = False
        # py4j connects once more, perhaps to a copy again.
        while _Block.current is self and not self.stopping and jvm_process() is jvm:
            if SparkContext._gateway is not None:
                SparkContext._gateway._gateway_client.is_connected = False  # or its finalizers wait there, too
            if signal.getsignal(INTERRUPT) == self._noticed:  # a program may have taken it
                os.kill(os.getpid(), INTERRUPT)
            time.sleep(last_line.NOTICED_S)

    @property
    def _jvm_ended(self) -> bool:
        """Whether the block ends with its JVM; not where the program has caught that, and started another one."""
        return self._ended is not None and jvm_process() is self._ended

    @property
    def stopping(self) -> bool:
        """Whether its end has begun."""
        return self._came_s is not None

    def _came(self, number: int, frame: FrameType | None) -> None:
        if self._came_s is None:
            self._came_s = time.monotonic()
            self._lost = None
            self._interrupted = left_connection()
            raise Stopped(128 + number)
        if number == signal.SIGINT and time.monotonic() - self._came_s > IN_A_HURRY_S:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _noticed(self, number: int, frame: FrameType | None) -> None:
        before = self._before[number]
        if callable(before):
            before(number, frame)
        if self.stopping or not self._jvm_ended:
            return
        # What cleans up after an error of py4j's knows it already.
        knows = self._said or isinstance(sys.exc_info()[1], Py4JError | ConnectionError)
        if not knows or _is_in_py4j(frame):
            self._said = True
            raise Py4JNetworkError(JVM_ENDED)

    def _swallowed(self, unraisable: Any) -> None:
        """Send a signal again that Python has swallowed.

        1. It comes while Python runs a finalizer: py4j has one for each object of the JVM. 2. Python prints its
        exception, and goes on. 3. Whoever sent it waits for the end, and kills the program.

        If the block ends before, it ends as by the signal. Sent after it, the signal would end the program at once, and
        queries that run would not leave their groups.
        """
        stopped = unraisable.exc_value
        if not isinstance(stopped, Stopped) or not isinstance(stopped.code, int):
            if isinstance(stopped, Py4JNetworkError):
                self._said = False
            self._hook(unraisable)
            return
        self._came_s, self._lost = None, stopped
        # After the finalizer, in which it would be swallowed again.
        self._again = threading.Timer(AGAIN_AFTER_S, os.kill, (os.getpid(), stopped.code - 128))
        self._again.daemon = True
        self._again.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._again is not None:
            self._again.cancel()
        if error is None and self._lost is not None:
            error, self._came_s = self._lost, time.monotonic()
        code = self._code(error)
        if error is None:
            atexit.register(_stop_at_end, self._groups)
        try:
            if code is not None:
                # Not after a signal: the interrupted call may still be answered, see _stopped_within.
                failed = self._came_s is None and isinstance(error, Exception)
                place = checkpoint_of(error) if failed and error is not None else ""
                if self._came_s is None:
                    self._came_s = time.monotonic()
                left = _Left(groups=False) if self._jvm_ended else _stopped_within(STOPS_S, _waited_for(error))
                self._say(error, code, left, place)
        finally:
            _Block.current = None
            sys.unraisablehook = self._hook
            if threading.current_thread() is threading.main_thread():
                for number, handler in self._before.items():
                    if handler is not None:
                        signal.signal(number, handler)
        if code is not None:
            raise SystemExit(code) from None

    def _code(self, error: BaseException | None) -> int | None:
        """The exit code if one line reports the end; None for an end that is the program's own."""
        match error:
            case Stopped(code=int(code)):
                return code
            case KeyboardInterrupt():
                return 128 + signal.SIGINT
            case Exception():
                # What Spark raises where a signal has stopped a query is no error.
                return 1
        return None

    def _say(self, error: BaseException | None, code: int, left: _Left, place: str) -> None:
        if code == 1 and error is not None:
            line = sentence(error)
            if line is None:
                traceback.print_exception(error)
                line = f"{type(error).__name__}: {first_line(error)}"
            else:
                line = as_given(line)
            line += query_of(line, place, self._groups)
        else:
            line = _stopped(self._groups, left)
        print_last(line)


def _require_workers() -> None:
    """End a program whose workers lack the package: Spark would only say that it does not know the source."""
    session = SparkSession.getActiveSession()
    if session is not None:
        try:
            require_found(session)
        except WorkersPythonError as error:
            raise SystemExit(str(error)) from None


def _is_in_py4j(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_globals.get("__name__", "").startswith("py4j."):
        frame = frame.f_back
    return frame is not None


def checkpoint_of(error: BaseException) -> str:
    """The checkpoint of the query that was waited for when it failed; empty where there is none, or none is known."""
    for query in _waited_for(error):
        with contextlib.suppress(Exception):  # the JVM may have ended
            return str(query._jsq.streamingQuery().resolvedCheckpointRoot())
    return ""


def _waited_for(error: BaseException | None) -> list[StreamingQuery]:
    """The query that was waited for when it failed, or a signal came; none where it was none."""
    frames = [] if error is None else traceback.walk_tb(error.__traceback__)
    callers = [frame.f_locals.get("self") for frame, _ in frames]
    return [caller for caller in callers if isinstance(caller, StreamingQuery)]


class _Left(NamedTuple):
    """How queries were stopped."""

    groups: bool  # whether their members have left their groups
    # Of transactions that may be open: the kafka.transactional.id, and the timeout in milliseconds
    open: tuple[tuple[str, int], ...] = ()
    named: tuple[str, ...] = ()  # these groups, where the readers' files had them


def _stopped(groups: tuple[str, ...], left: _Left) -> str:
    line, groups = "stopped", left.named or groups
    if groups:
        named = f"group{'s' if len(groups) > 1 else ''} {', '.join(groups)}"
        line += (
            f"; left {named}" if left.groups else f"; {named}: a member may stay until kafka.session.timeout.ms is over"
        )
    for prefix, timeout_ms in left.open:
        line += (
            f". Transactions of kafka.transactional.id {prefix} may be open: readers of committed records wait "
            f"for them until the query is started again, or {timeout_ms // 1000} s at most"
        )
    return line


def _stop_at_end(groups: tuple[str, ...]) -> None:
    """Stop queries that the program has not waited for; nothing where there are none."""
    session = None if is_remote() else SparkSession._instantiatedSession
    running, jvm = 0, jvm_process()
    if session is not None and (jvm is None or jvm.poll() is None):  # or it might be waited for, see _Block._watch
        with contextlib.suppress(Exception):  # the JVM may have ended
            running = len(session.streams.active)
    if running:
        line = _stopped(groups, _stopped_within(STOPS_S))
        ran = "a query" if running == 1 else f"{running} queries"
        print_last(f"{line}. The program ended while {ran} ran: query.awaitTermination() waits for a query")


def _stopped_within(seconds: float, stopped: Sequence[StreamingQuery] = ()) -> _Left:
    """Stop queries and session, and those `stopped` already. In a thread of its own, which has another connection to
    the JVM: on the main thread's the answer to the call that a signal interrupted may come."""
    # That of a thread: with Spark Connect there is none in others.
    session = SparkSession.getActiveSession() if is_remote() else SparkSession._instantiatedSession
    if session is None and SparkContext._jvm is None:
        return _Left(groups=True)
    folders: list[Path] = []
    left: list[_Left] = []
    thread = threading.Thread(
        target=lambda: left.append(_stop(session, stopped, folders)), name="groupkafka-ending", daemon=True
    )  # fmt: skip
    thread.start()
    thread.join(seconds)
    return left[0] if left else _Left(False, tuple(one for folder in folders for one in planned_writes(folder)))


def _stop(session: SparkSession | None, stopped: Sequence[StreamingQuery], folders: list[Path]) -> _Left:
    """As :func:`_stopped_within`. Spark's temporary directory for the application is added to `folders` first."""
    if SparkContext._jvm is not None:
        _silence(SparkContext._jvm)
    if session is None:  # Spark was starting, so there is no query
        return _Left(groups=True)
    context = session.sparkContext if hasattr(session, "_jsparkSession") else None
    left = _Left(groups=False)
    with contextlib.suppress(Exception):  # the JVM may be ending, too
        if context is not None:
            folders.append(Path(SparkFiles.getRootDirectory()))
        queries = session.streams.active
        named = () if context is None else _groups_in(folders[0] / READERS_FOLDER)
        ended = [_ended(query) for query in queries]
        if context is None:
            left = _Left(all(ended))
        else:
            context.cancelAllJobs()
            (folder,) = folders
            have_left = _readers_ended(folder / READERS_FOLDER)
            abort_planned(folder, [*queries, *stopped])
            left = _Left(have_left, tuple(planned_writes(folder)), named)
        session.stop()
    return left


def _ended(query: StreamingQuery) -> bool:
    """Stop a query; whether it has ended, as far as Spark can be asked."""
    with contextlib.suppress(Exception):  # that of a query that has just failed
        query.stop()
    with contextlib.suppress(Exception):
        return not query.isActive
    return False


def _silence(jvm: Any) -> None:
    """Have Spark's JVM not log queries that end. `setLogLevel` does nothing after spark.log.level."""
    with contextlib.suppress(Exception):  # another library than Log4j may log
        log4j = jvm.org.apache.logging.log4j
        log4j.core.config.Configurator.setAllLevels(log4j.LogManager.ROOT_LOGGER_NAME, log4j.Level.OFF)
    with contextlib.suppress(Exception):
        # The JVM itself writes there that a thread has ended with an error: that of a query whose start a signal has
        # interrupted, and which Spark begins all the same.
        jvm.java.lang.System.setErr(jvm.java.io.PrintStream(jvm.java.io.OutputStream.nullOutputStream()))


def _groups_in(folder: Path) -> tuple[str, ...]:
    """The groups of Spark's reader processes that live."""
    groups = set()
    for path in folder.glob("*/*.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            text = read_if_locked(path)
            if text is not None:
                groups.add(str(parsed(text)["group"]))
    return tuple(sorted(groups))


def _readers_ended(folder: Path) -> bool:
    """Wait for Spark's reader processes, which leave their groups when Spark has stopped their queries."""
    until = time.monotonic() + LEAVES_S
    while any(folder.glob("*/*.json")):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


class _Forwarding:
    """Hands a signal of the JVM's process on to this one, in place of the JVM's own end. SIGTERM reaches spark-submit's
    process alone, which is the JVM's. Ctrl-C reaches both processes: this one gets it twice."""

    def handle(self, received: Any) -> None:
        block = _Block.current
        if block is None or not block.stopping:
            os.kill(os.getpid(), received.getNumber())

    class Java:
        implements = ("sun.misc.SignalHandler",)


def _forward(gateway: Any) -> None:
    with contextlib.suppress(Exception):  # a JVM with -Xrs leaves signals to the system
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        jdk, forwarding = gateway.jvm.sun.misc, _Forwarding()
        # A JVM that Python has started ignores Ctrl-C anyway.
        for name in ("INT", "TERM") if OF_A_JOB in os.environ else ("TERM",):
            jdk.Signal.handle(jdk.Signal(name), forwarding)
