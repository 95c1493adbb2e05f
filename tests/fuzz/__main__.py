"""Fuzzes the readers of foreign bytes: `make fuzz`. CONTRIBUTING.md says how, and how to add a target.

Each target has a process of its own, on decoder and encoder built with ASan and UBSan; one that crashes, hangs or takes
too much memory is a finding like another, and the next process goes on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import targets

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BUILD = ROOT / ".fuzz"
EXECUTOR = ROOT / "spark_kafka_group" / "executor"
SOURCES = [
    EXECUTOR / name
    for name in (
        "cursor.pxi",
        "utf8.pxi",
        "decode/_decode_c.pyx",
        "decode/crc32c.h",
        "encode/_encode_c.pyx",
        "values/_avro_c.pyx",
        "values/_json_c.pyx",
        "values/_write_c.pyx",
        "values/_protobuf_c.pyx",
        "values/value_columns.pxi",
    )
]
SANITIZED = "-g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"
MOST_MB = 3000
STARTING_S = 300
"""How long a process may take for more than its time: to start, and to end its last input."""
SHORT_S = 30.0
"""So long a process runs at least, where its target has as much time: it takes seconds to start. In less time no target
runs whose inputs are given, as those of `large` take half a minute, and none that needs the sanitized build, of
minutes."""


@dataclass
class Result:
    """The result of one target, over all its processes."""

    inputs: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    memory_mb: float = 0.0
    findings: dict[str, Path] = field(default_factory=dict)

    def line(self, name: str) -> str:
        rate = self.inputs / self.seconds if self.seconds else 0.0
        return (
            f"{name:15} {self.inputs:9} inputs {rate:8.0f}/s {len(self.findings):3} findings  "
            f"worst {self.cpu_s:6.2f} s {self.memory_mb:6.0f} MB"
        )


def build() -> Path:
    """The compiled twins with sanitizers, in a folder of their own."""
    library, sources = BUILD / "lib", [*SOURCES, ROOT / "setup.py"]
    built = next(library.rglob("_json_c.*.so"), None)
    if built is None or built.stat().st_mtime < max(source.stat().st_mtime for source in sources):
        command = [sys.executable, "setup.py", "-q", "build_ext", "--force", "--parallel", "2", "--build-lib", library]
        environment = os.environ | {"CFLAGS": SANITIZED, "SPARK_KAFKA_GROUP_WERROR": "0"}
        subprocess.run([*command, "--build-temp", BUILD / "temp"], cwd=ROOT, env=environment, check=True)
    return library


def environment() -> dict[str, str]:
    """Everything that allocates does so where ASan sees it: Python's objects, and Arrow's buffers."""
    libraries = [
        subprocess.check_output(["gcc", f"-print-file-name={name}"], text=True).strip()
        for name in ("libasan.so", "libstdc++.so")
    ]
    address = {
        "detect_leaks": 0, "quarantine_size_mb": 32, "malloc_context_size": 4, "hard_rss_limit_mb": MOST_MB,
        "allocator_may_return_null": 1,
    }  # fmt: skip
    return os.environ | {
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": ":".join(f"{name}={value}" for name, value in address.items()),
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "PYTHONPATH": str(ROOT),
    }


class Fuzzer:
    """Starts the processes, and keeps their findings."""

    def __init__(self, seed: str, built: Path) -> None:
        self._seed = seed
        self._built = built
        self._environment = environment()
        self.results: dict[str, Result] = {}

    def run(self, name: str, part: int, seconds: float) -> None:
        """One part of a target's time, with another process after each that crashes."""
        for case in targets.TARGETS[name].cases:
            self.again(name, case)
        began, start = time.monotonic(), 0
        while not targets.TARGETS[name].cases and (start == 0 or seconds - (time.monotonic() - began) > 1):
            left = max(0.0, seconds - (time.monotonic() - began))
            if self._process(name, f"{self._seed}/{name}/{part}/{start}", left, self._folders(name)):
                break
            start += 1

    def again(self, name: str, data: bytes) -> None:
        """One input alone."""
        digest = hashlib.sha256(data).hexdigest()[:16]
        folder = BUILD / "alone" / f"{name}-{digest}"
        _save(folder, data)
        self._process(name, f"alone/{name}/{digest}", 0.0, [folder])

    def _folders(self, name: str) -> list[Path]:
        """Seeds of inputs: those of the project, and those that reached new code since the last `make clean`."""
        return [HERE / "corpus" / name, BUILD / "corpus" / name]

    def _process(self, name: str, seed: str, seconds: float, folders: list[Path]) -> bool:
        """Whether a process came to its end."""
        place = BUILD / "processes" / seed.replace("/", "-")
        place.parent.mkdir(parents=True, exist_ok=True)
        current, errors = place.with_suffix(".input"), place.with_suffix(".errors")
        sanitized = targets.TARGETS[name].sanitized
        built = self._built if sanitized else ""
        command = [sys.executable, HERE / "worker.py", name, seed, str(seconds), built, current, *folders]
        environment = self._environment if sanitized else os.environ | {"PYTHONPATH": str(ROOT)}
        began = time.monotonic()
        with errors.open("w") as stderr, place.with_suffix(".facts").open("w+") as stdout:
            process = subprocess.Popen(command, env=environment, stdout=stdout, stderr=stderr, cwd=BUILD)
            try:
                code = process.wait(seconds + STARTING_S)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
            stdout.seek(0)
            self._keep(name, seed, stdout.read().splitlines())
        self.results.setdefault(name, Result()).seconds += time.monotonic() - began
        if code == 0:
            return True
        held = current.read_bytes() if current.exists() else bytes(8)
        data = held[8 : 8 + int.from_bytes(held[:8])]
        self._found(name, seed, _how_it_ended(code, errors.read_text(errors="replace")), data)
        return False

    def _keep(self, name: str, seed: str, lines: list[str]) -> None:
        result, inputs = self.results.setdefault(name, Result()), 0
        for line in lines:
            fact = json.loads(line)
            if "finding" in fact:
                self._found(name, seed, fact["finding"], bytes.fromhex(fact["input"]))
            elif "led_on" in fact:
                _save(BUILD / "corpus" / name, bytes.fromhex(fact["led_on"]))
            else:
                inputs = fact["inputs"]
                result.cpu_s = max(result.cpu_s, fact["cpu_s"])
                result.memory_mb = max(result.memory_mb, fact["memory_mb"])
        result.inputs += inputs

    def _found(self, name: str, seed: str, problem: str, data: bytes) -> None:
        findings = self.results.setdefault(name, Result()).findings
        kind = problem.split(": ")[0] + (data.decode() if targets.TARGETS[name].cases else "")
        if kind in findings:
            return
        findings[kind] = _save(BUILD / "findings" / name, data)
        print(
            f"FOUND {name}: {problem}\n  seed {seed}; again: make fuzz INPUT={findings[kind].relative_to(ROOT)}",
            flush=True,
        )


def _save(folder: Path, data: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha256(data).hexdigest()[:16]
    path.write_bytes(data)
    return path


def _how_it_ended(code: int, errors: str) -> str:
    signs = ("SUMMARY:", "runtime error:", "hard rss limit", "AddressSanitizer:", "Error")
    result = [line for sign in signs for line in errors.splitlines() if sign in line]
    if code == -27:
        return "hangs"
    return f"ends with {code}, {result[0] if result else errors.strip()[-300:]}"


def parts(shares: dict[str, int], seconds: float) -> list[tuple[str, int, float]]:
    """Name, number and seconds of each process: as many as a target has shares, but none short; long ones first."""
    found = []
    for name, share in shares.items():
        its_s = seconds * share / sum(shares.values())
        processes = max(1, min(share, int(its_s / SHORT_S)))
        found += [(name, part, its_s / processes) for part in range(processes)]
    return sorted(found, key=lambda part: -part[2])


def main() -> int:
    arguments = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    arguments.add_argument("--seconds", type=float, default=3600.0, help="in all")
    arguments.add_argument("--seed", default=str(time.time_ns() // 10**9))
    arguments.add_argument("--only", nargs="*", default=[], help="names of targets; all by default")
    arguments.add_argument("--input", type=Path, help="one input that was found, in place of others")
    given = arguments.parse_args()
    long = given.seconds >= SHORT_S
    names = given.only or [
        name for name, target in targets.TARGETS.items() if long or not (target.cases or target.sanitized)
    ]
    sanitized = given.input is not None or any(targets.TARGETS[name].sanitized for name in names)
    fuzzer = Fuzzer(given.seed, build() if sanitized else BUILD)
    if given.input is not None:
        fuzzer.again(given.input.absolute().parent.name, given.input.read_bytes())
    else:
        at_once = os.cpu_count() or 1
        work = parts({name: targets.TARGETS[name].share for name in names}, given.seconds * at_once)
        print(f"seed {given.seed}: {len(work)} processes, {at_once} at once", flush=True)
        with ThreadPoolExecutor(at_once) as pool:
            for done in [pool.submit(fuzzer.run, *part) for part in work]:
                done.result()
    for name, result in sorted(fuzzer.results.items()):
        print(result.line(name))
    return 1 if any(result.findings for result in fuzzer.results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
