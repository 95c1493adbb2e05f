"""Programs in Go that tests start, built of the folders beside them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from spark_kafka_group.testing.download import cache_directory, once

NO_GO = "no Go here, which builds {}: install Go 1.26 or newer, or put its folder `bin` on PATH"


def go() -> str | None:
    """The go command, if there is one."""
    return shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")


def built(folder: Path) -> Path:
    """The program of a folder, named as the folder is, built if it is not there yet."""
    sources = sorted([*folder.glob("*.go"), *folder.glob("go.*")])
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    name = folder.name

    def build(parts: Path) -> None:
        command = [str(go()), "build", "-mod=readonly", "-trimpath", "-o", str(parts / "lib" / name), "."]
        settings = os.environ | {"GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
        done = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{name} cannot be built: {done.stderr}")

    return once(cache_directory() / f"{name}-{digest}", build, f"building {name} with Go, once") / name
