"""A terminal that is drawn on, gives its keys, and is left as it was.

Plain ANSI sequences, and no curses: see docs/design/reports.md.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from types import FrameType

ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l"
"""The alternate screen, no cursor, and no line that goes on in the next: a wide character may take two columns."""
LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[2K", "\x1b[J"
REVERSE, PLAIN = "\x1b[7m", "\x1b[m"
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
KEYS = {"\x1b[A": "up", "\x1b[B": "down", "\x1b[5~": "page up", "\x1b[6~": "page down", "\x1b[H": "home"}
KEYS |= {sequence.replace("[", "O"): key for sequence, key in KEYS.items()}
"""Some terminals send the second form."""
AT_ONCE = 1024


def there_is_one() -> bool:
    """Whether standard output is a terminal that can be drawn on."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


class Terminal:
    """A screen with keys. A context manager, for the main thread."""

    def __init__(self) -> None:
        self.ended_by: signal.Signals | None = None  # the signal that asked for the end
        self._out = sys.stdout.fileno()
        self._keys: int | None = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        self._before = None if self._keys is None else termios.tcgetattr(self._keys)
        self._woken, self._waking = os.pipe()
        os.set_blocking(self._waking, False)

    def __enter__(self) -> Terminal:
        handlers = dict.fromkeys(ENDING, self._end) | {signal.SIGWINCH: self._woken_up, signal.SIGTSTP: self._stop}
        self._handlers = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        self._enter()
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(OSError):  # it is gone
            self._leave()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        columns, lines = os.get_terminal_size(self._out)
        return columns or 80, lines or 24

    def draw(self, lines: Sequence[str], reversed_line: int | None) -> None:
        """Show lines, one at least, in place of those before. They have no characters that control a terminal."""
        *shown, last = [f"{REVERSE}{line}{PLAIN}" if n == reversed_line else line for n, line in enumerate(lines)]
        # Behind a line as wide as the terminal the cursor is on its last character, and would clear it.
        self._write(HOME + "".join(f"{CLEAR_LINE}{line}\n" for line in shown) + CLEAR_BELOW + last)

    def wake(self) -> None:
        """End a wait, from any thread."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._waking, b"\0")

    def keys(self, within_s: float) -> list[str]:
        """Keys that were hit; none after this time, or when it was woken."""
        watched = [self._woken] if self._keys is None else [self._woken, self._keys]
        ready, _, _ = select.select(watched, [], [], within_s)
        if self._woken in ready:
            os.read(self._woken, AT_ONCE)
        if self._keys not in ready or self._keys is None:
            return []
        hit = os.read(self._keys, AT_ONCE)
        if not hit:
            self._keys = None  # closed
        return list(_keys_of(hit.decode(errors="replace")))

    def _enter(self) -> None:
        if self._keys is not None:
            tty.setcbreak(self._keys)
        self._write(ENTER)

    def _leave(self) -> None:
        self._write(LEAVE)
        if self._before is not None:
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._before)

    def _write(self, text: str) -> None:
        left = text.encode(sys.stdout.encoding or "utf-8", "replace")
        while left:
            left = left[os.write(self._out, left) :]

    def _end(self, number: int, frame: FrameType | None) -> None:
        self.ended_by = signal.Signals(number)
        self.wake()

    def _woken_up(self, number: int, frame: FrameType | None) -> None:
        self.wake()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-Z: the shell gets its terminal back until the process goes on."""
        self._leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._enter()
        self.wake()


def _keys_of(hit: str) -> Iterator[str]:
    while hit:
        sequence = next((s for s in KEYS if hit.startswith(s)), hit[0])
        yield KEYS.get(sequence, sequence)
        hit = hit[len(sequence) :]
