"""A thread takes part in rebalances between Spark's calls, which can be far apart."""

from __future__ import annotations

import threading
from collections.abc import Callable

CHECK_MS = 500
"""How long a rebalance may wait for this member after the heartbeat that announces it."""


class BetweenTriggers:
    """Calls `settle` again and again, in a thread, while the lock is free.

    Parameters
    ----------
    settle
        Called with the milliseconds it may take. An error ends the thread; :meth:`raise_error` brings it to Spark.
    """

    def __init__(self, settle: Callable[[float], None], lock: threading.RLock, heartbeat_interval_ms: int) -> None:
        self._settle = settle
        self._lock = lock
        self._every_s = min(heartbeat_interval_ms, CHECK_MS) / 1000
        self._stopping = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="groupkafka-idler", daemon=True)
        self._thread.start()

    def raise_error(self) -> None:
        """Raise what ended the thread, if anything did."""
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        """Settle no more. The caller has the lock, so no call is under way."""
        self._stopping.set()

    def stop(self) -> None:
        """End the thread; waits for a call under way, which is short."""
        self._stopping.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=2 * CHECK_MS / 1000)

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            if not self._lock.acquire(blocking=False):
                continue
            try:
                if not self._stopping.is_set():
                    self._settle(CHECK_MS)
            except Exception as error:  # noqa: BLE001 - raised where Spark sees it
                # 1. A call is under way. 2. stop() gives up waiting for it, and closes connections. 3. The call fails:
                #    that is no error of the query's.
                if not self._stopping.is_set():
                    self._error = error
                return
            finally:
                self._lock.release()
