"""How commands end: by an error's sentence, or by Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading

from spark_kafka_group.errors import GroupKafkaError


class ToolError(GroupKafkaError):
    """Raised when a command fails; the text says what to change."""


class UsageError(ToolError):
    """Raised when arguments contradict each other in a way that argparse does not see."""


def end_at_ctrl_c() -> None:
    """End the process at once: nothing is to be cleaned up, and a KeyboardInterrupt was seen to have no effect."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(128 + number))
