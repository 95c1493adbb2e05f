"""Files that options and commands name, and files by which processes of one application know each other.

Files of users are read within bounds: of size, of time for a pipe. A shared file is locked while its writer lives.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import select
import stat
import time
from pathlib import Path
from typing import IO

READERS_FOLDER = ".groupkafka"
"""A directory in Spark's temporary one for an application, with a file for each of its stream readers in a group."""
PLANS_PREFIX = "groupkafka-transactions-"
"""How the files of exactly-once writes begin in Spark's temporary directory for an application."""
MOST_BYTES = 4 * 1024 * 1024
ROOT = re.compile("(?:file:)?/+")
"""How the name of a folder on this machine begins, or its URI; Hadoop refuses a host in it."""
PIPE_S = 10.0  # how long a pipe may take, such as that of ``<(command)`` in a shell


def local_folder(named: str) -> Path:
    """The folder that Hadoop's ``Path``, which may be a URI, takes a name for, where its file system is local. Hadoop
    takes ``..`` out of the text; the system goes where it leads, as below a link."""
    root = ROOT.match(named)
    path = named if root is None else "/" + named[root.end() :]
    return Path(os.path.normpath(os.path.join(os.getcwd(), path)))


def read_file(path: str | Path) -> bytes:
    """The bytes of a file, or of a pipe. Raises OSError, also for a path that is not valid, and beyond 4 MiB."""
    try:
        # A pipe without a writer is not waited for here.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except ValueError:
        raise OSError(errno.EINVAL, "this is not a valid path") from None
    try:
        kind = os.fstat(descriptor).st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISFIFO(kind) or stat.S_ISDIR(kind)):
            raise OSError(errno.EINVAL, "it is neither a file nor a pipe")
        return _bytes_of(descriptor, stat.S_ISFIFO(kind))
    finally:
        os.close(descriptor)


def _bytes_of(descriptor: int, pipe: bool) -> bytes:
    until, content = time.monotonic() + PIPE_S, bytearray()
    while True:
        if pipe:
            _wait(descriptor, until)
        data = os.read(descriptor, MOST_BYTES + 1 - len(content))
        if not data:
            return bytes(content)
        content += data
        if len(content) > MOST_BYTES:
            raise OSError(errno.EFBIG, f"it has more than {MOST_BYTES} bytes: check that it is the right file")


def _wait(descriptor: int, until: float) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    if not poll.poll(max(0, until - time.monotonic()) * 1000):
        raise OSError(errno.ETIMEDOUT, f"it is a pipe into which nothing was written for {PIPE_S:g} s")


def file_name(name: str) -> str:
    """A file's name for any name: a checkpoint may hold a query id that is a path."""
    return hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:32]


def make_folder(folder: Path, directory: Path) -> None:
    """Make a folder below `directory`, never that itself: without it the application is over."""
    if folder.parent != directory:
        make_folder(folder.parent, directory)
    folder.mkdir(exist_ok=True)


def put(path: Path, text: str) -> IO[str]:
    """Write a file, locked, in one step; returns it, to be kept open as long as it holds.

    1. A file is made. 2. Another process lists the folder, and takes a file without a lock for one that a dead process
    left behind. So the file is locked, and whole, before it gets the name that is listed.
    """
    new = path.with_suffix(f".{os.getpid()}.{id(path)}.new")
    file = new.open("w+", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.write(text)
        file.flush()
        new.rename(path)
    except BaseException:
        file.close()
        new.unlink(missing_ok=True)
        raise
    return file


def remove(file: IO[str], path: Path) -> None:
    """Remove the file that :func:`put` made, unless another process has put its own in its place; and close it."""
    try:
        if is_same(file, path):
            path.unlink()
    except OSError:
        pass  # the folder is gone
    finally:
        file.close()


def read_if_locked(path: Path) -> str | None:
    """The text of a file whose writer lives; None of one that a dead process left behind, or that is gone."""
    while True:
        try:
            with path.open(encoding="utf-8") as file:
                if is_locked(file):
                    return file.read()
                if is_same(file, path):
                    return None
                # 1. The file is opened. 2. Its writer puts a new one in its place, and unlocks this one.
        except FileNotFoundError:
            return None


def is_locked(file: IO[str]) -> bool:
    """Whether the process that made the file lives, and has not put another one in its place."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def is_same(file: IO[str], path: Path) -> bool:
    """Whether the path still names this file."""
    return os.path.samestat(os.fstat(file.fileno()), path.stat())
