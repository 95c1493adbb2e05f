"""Runs one target for a while: the part of the fuzzer that may crash.

The current input is always in a file, so that the parent process has it after a crash. The worker prints findings, and
counts once in a while, as lines of JSON.
"""

from __future__ import annotations

import importlib.util
import json
import mmap
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from targets import Target

HERE = Path(__file__).parent
PACKAGE = str(HERE.parents[1] / "spark_kafka_group") + os.sep
LONGEST = 1 << 20
TRACED_OF = 8
"""One input in so many is looked at line by line, as that makes it slow."""
MOST_KEPT = 3000


def load_sanitized(built: Path) -> None:
    """Have the compiled twins that were built with sanitizers, in place of the usual ones."""
    of_values = [("values", name) for name in ("_avro_c", "_json_c", "_protobuf_c", "_write_c")]
    for package, module_name in (("decode", "_decode_c"), ("encode", "_encode_c"), *of_values):
        name = f"spark_kafka_group.executor.{package}.{module_name}"
        [path] = built.rglob(f"{module_name}.*.so")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)


class Current:
    """The input at hand, in a file that outlives this process."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(LONGEST + 8))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    def put(self, data: bytes) -> None:
        data = data[:LONGEST]
        self._map[: 8 + len(data)] = len(data).to_bytes(8) + data


class Coverage:
    """Which lines of the package follow each other, over all inputs."""

    def __init__(self) -> None:
        self._seen: set[tuple[int, int]] = set()

    def is_new(self, run: Any, data: bytes) -> bool:
        """Whether an input leads where none before has led."""
        found: set[tuple[int, int]] = set()
        before = 0

        def line(frame: FrameType, event: str, arg: object) -> Any:
            nonlocal before
            here = id(frame.f_code) ^ frame.f_lineno
            found.add((before, here))
            before = here
            return line

        def call(frame: FrameType, event: str, arg: object) -> Any:
            return line if frame.f_code.co_filename.startswith(PACKAGE) else None

        sys.settrace(call)
        try:
            run(data)
        except Exception:  # noqa: BLE001 - it is run once more, and reported then
            pass
        finally:
            sys.settrace(None)
        if found <= self._seen:
            return False
        self._seen |= found
        return True


def memory_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE / 2**20


def most_memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@dataclass(frozen=True)
class Taken:
    """Time and memory that an input took, and its problem: a text, and the part that findings of the same kind have."""

    cpu_s: float
    memory_mb: float
    problem: str | None = None
    kind: str = ""


def tried(target: Target, data: bytes) -> Taken:
    """Run one input."""
    before_mb, peak_mb, began = memory_mb(), most_memory_mb(), time.process_time()
    problem = kind = None
    try:
        target.run(data)
    except Exception as error:  # noqa: BLE001 - it is what is looked for
        inner = traceback.extract_tb(error.__traceback__)[-1]
        kind = f"{type(error).__name__} at {Path(inner.filename).name}:{inner.lineno}"
        problem = f"{kind}: {str(error)[:300]}"
    cpu_s = time.process_time() - began
    more_mb = most_memory_mb() - before_mb if most_memory_mb() > peak_mb else 0.0
    if problem is None and cpu_s > target.cpu_s:
        kind, problem = "time", f"takes {cpu_s:.1f} s of CPU, more than {target.cpu_s:.0f} s"
    if problem is None and more_mb > target.memory_mb:
        kind, problem = "memory", f"takes {more_mb:.0f} MB, more than {target.memory_mb} MB"
    return Taken(cpu_s, more_mb, problem, kind or "")


def inputs(target: Target, corpus: list[bytes], rng: Random) -> Generator[bytes, bool, None]:
    """Without end. An input is kept, to be changed further, where it is sent that it led somewhere new."""
    kept = list(corpus)
    for data in corpus:
        yield data
    while True:
        if target.generate is not None and (not kept or rng.random() < 0.2):
            data = target.generate(rng)
        else:
            data = target.changed(rng, rng.choice(kept), rng.choice(kept))
        if (yield data):
            kept[: len(kept) - MOST_KEPT + 1] = []
            kept.append(data)


def fuzz(
    target: Target, corpus: list[bytes], rng: Random, seconds: float, current: Current
) -> Iterator[dict[str, Any]]:
    """Run the corpus, then inputs for so long; facts to be printed."""
    made, coverage, known = inputs(target, corpus, rng), Coverage(), set()
    count, cpu_s, memory_mb, led_on = 0, 0.0, 0.0, False
    data = next(made, b"")
    began = reported = time.monotonic()
    while count < len(corpus) or time.monotonic() - began < seconds:
        current.put(data)
        signal.setitimer(signal.ITIMER_PROF, 2 * target.cpu_s + 10)  # which ends this process
        taken = tried(target, data)
        if taken.problem is not None and taken.kind not in known:
            known.add(taken.kind)
            yield {"finding": taken.problem, "input": data.hex()}
        count, cpu_s, memory_mb = count + 1, max(cpu_s, taken.cpu_s), max(memory_mb, taken.memory_mb)
        if taken.cpu_s < 0.2 and (count <= len(corpus) or count % TRACED_OF == 0):
            led_on = coverage.is_new(target.run, data) and count > len(corpus)
            if led_on:
                yield {"led_on": data.hex()}
        if time.monotonic() - reported > 0.5:
            reported = time.monotonic()
            yield {"inputs": count, "cpu_s": cpu_s, "memory_mb": memory_mb}
        data, led_on = made.send(led_on), False
    yield {"inputs": count, "cpu_s": cpu_s, "memory_mb": memory_mb}


def main() -> None:
    """TARGET SEED SECONDS FOLDER-OF-THE-SANITIZED-BUILD (or '') FILE-OF-THE-INPUT FOLDER...  BUILD FILE."""
    name, seed, seconds, built, current, *folders = sys.argv[1:]
    if built:
        load_sanitized(Path(built))  # before anything imports the usual one
    import targets

    target = targets.TARGETS[name]
    corpus = [path.read_bytes() for folder in folders for path in sorted(Path(folder).glob("*")) if path.is_file()]
    for fact in fuzz(target, corpus, Random(seed), float(seconds), Current(Path(current))):
        print(json.dumps(fact), flush=True)


if __name__ == "__main__":
    main()
