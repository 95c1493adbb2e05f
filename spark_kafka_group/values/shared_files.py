"""Files by which the processes of one Spark application know of each other: each is locked while its writer lives."""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path
from typing import IO


def file_name(name: str) -> str:
    """A file's name for any name: a checkpoint may hold a reader id that is a path."""
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
