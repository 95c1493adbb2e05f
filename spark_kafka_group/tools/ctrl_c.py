"""Ctrl-C ends a command that only looks."""

from __future__ import annotations

import os
import signal
import threading


def end_at_ctrl_c() -> None:
    """End the process at once: nothing is to be cleaned up, and a KeyboardInterrupt was seen to have no effect."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(128 + number))
