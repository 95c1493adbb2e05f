"""SIGTERM and Ctrl-C while kafka-python's event loop runs on the main thread.

Python runs a signal's handler in the main thread, between any two instructions, and these handlers raise. The loop
takes every exception, also SystemExit and KeyboardInterrupt, for one of the task that it runs: 1. the task fails, as if
a connection had been lost, 2. the signal is forgotten, 3. the process goes on. So handlers wait for the loop's next
pause, and a signal wakes it.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

RAISING = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def put_off(wake: Callable[[], None]) -> Iterator[None]:
    """In this block signals call `wake`, and no handlers; these run when it is left. A no-op in other threads.

    Parameters
    ----------
    wake
        Ends the block's waiting; called from a signal handler.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: handler for number in RAISING if callable(handler := signal.getsignal(number))}
    came: list[tuple[int, FrameType | None]] = []

    def take_note(number: int, frame: FrameType | None) -> None:
        came.append((number, frame))
        wake()

    with contextlib.ExitStack() as restored:
        for signum, handler in handlers.items():
            restored.callback(signal.signal, signum, handler)
            signal.signal(signum, take_note)
        try:
            yield
        finally:
            restored.close()
            for number, frame in came:
                handlers[signal.Signals(number)](number, frame)
