"""Hours of everything at once, more quietly, with samples of what processes hold: ``make endurance HOURS=8``.

A run is made of pieces: each ends when its time is over, or at SIGTERM or Ctrl-C, and is then judged together with all
pieces before. ``--resume`` goes on with the same brokers' data, topic, checkpoints and sinks; ``--report`` says what
there is, also after a kill -9. All that is needed for that is in the run's folder:

    state.json           the seed, the topic, and what earlier pieces counted and found
    samples.jsonl        what processes held, and the lag: a line each ten seconds
    acknowledged.jsonl   records, as their acknowledgements came; `aborted` and `unsure` likewise
    kafka/ queries/      the brokers' data; checkpoints, sinks, logs and event logs
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import threading
import time
import uuid
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from faults import report
from faults.cells.acts import OPTIONS, second
from faults.cells.everything import LANES, PROPERTIES, storm
from faults.cells.network import by_proxies, proxied
from faults.evidence import GROUPKAFKA, Acknowledged, Finding
from faults.gather import gathered
from faults.judge import judged as findings_of
from faults.lines import RESULTS
from faults.load import Load
from faults.neighbours import Said
from faults.processes import command, whole_lines
from faults.report import growth
from faults.run import RUNS, code_version
from faults.running import held_by
from faults.scene import SESSION_S, Scene
from faults.storm import without
from spark_kafka_group.testing import KafkaCluster
from spark_kafka_group.testing.node import session

FOLDER = RUNS / "endurance"
PARTITIONS = 4
PER_SECOND = 150
EVERY_S = 10.0
STORM_S = 90.0
CALM = 4.0
"""So many times the time between faults of the cell `everything`."""
ENDS_THE_DRIVER = ("driver-kill", "driver-kill-at-a-point", "jvm-kill", "reader-kill", "driver-term", "driver-zombie")
"""Not in a piece: processes have to live for their growth to be seen. A piece ends with SIGTERM of the program."""
LEAKS_IN_SPARK = ("worker-daemon-kill",)
"""Nor these. If the daemon is dead, Spark's PythonWorkerFactory.stopWorker fails before it closes the socket and the
selector of a worker that is idle and dead: the JVM has three descriptors more, with any query that has Python in it."""
OF_A_PIECE = ("progress in time", "ended as wanted", "nothing left", "run")
"""Invariants whose evidence is not kept: their findings are."""


class Kept:
    """The folder of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state: dict[str, Any] = {}
        self._written = 0
        self._names: dict[str, set[str]] = {"aborted": set(), "unsure": set()}
        if (folder / "state.json").exists():
            self.state = json.loads((folder / "state.json").read_text())

    @property
    def samples(self) -> Path:
        return self.folder / "samples.jsonl"

    def save(self) -> None:
        """Write the state, whole or not at all."""
        unfinished = self.folder / "state.unfinished"
        unfinished.write_text(json.dumps(self.state, indent=1))
        unfinished.rename(self.folder / "state.json")

    def restore(self, scene: Scene, load: Load) -> None:
        """Bring back the records of earlier pieces."""
        for path in self.folder.glob("*.jsonl"):
            text = path.read_bytes()
            if not text.endswith(b"\n"):  # the line that was being written when the piece was killed
                os.truncate(path, text.rfind(b"\n") + 1)
        load.also([Acknowledged(*line) for line in self._lines("acknowledged")])
        self._written = len(load.acknowledged)
        for name in self._names:
            self._names[name] = set(self._lines(name))
        scene.aborted |= self._names["aborted"]
        scene.gone |= self._names["unsure"]
        neighbours = sorted(scene.directory.glob("neighbour-*.jsonl"))
        scene.neighbours += [Said(path) for path in neighbours]

    def _lines(self, name: str) -> list[Any]:
        return [json.loads(line) for line in whole_lines(self.folder / f"{name}.jsonl")]

    def note(self, scene: Scene, sample: dict[str, Any]) -> None:
        """Add a sample, and the records that were acknowledged since the last one."""
        assert scene.load is not None
        fresh = scene.load.acknowledged[self._written :]
        self._written += len(fresh)
        self._append("acknowledged", [[a.identity, a.topic, a.partition, a.offset] for a in fresh])
        for name, now in (("aborted", set(scene.aborted)), ("unsure", set(scene.gone))):
            self._append(name, sorted(now - self._names[name]))
            self._names[name] |= now
        self._append("samples", [sample])

    def _append(self, name: str, lines: list[Any]) -> None:
        with (self.folder / f"{name}.jsonl").open("a") as file:
            file.write("".join(json.dumps(line) + "\n" for line in lines))

    def end_programs(self) -> None:
        """Kill queries and neighbours of a piece that was killed itself. (Its brokers have ended with it.)"""
        topic = self.state["topic"].encode()  # in their commands, and in no others
        for pid in [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]:
            if topic in command(pid):
                for one in {pid, *session(pid)}:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(one, signal.SIGKILL)


# Samples


def held(pids: list[int]) -> list[float] | None:
    """Of some processes together: the id of the first, memory in MB, threads, descriptors."""
    memory, threads, descriptors = 0.0, 0, 0
    for pid in pids:
        one, used = held_by(pid), memory_mb(pid)
        if one is None or used is None:  # it has ended
            return None
        memory, threads, descriptors = memory + used, threads + one.threads, descriptors + one.descriptors
    return [pids[0], round(memory, 1), threads, descriptors] if pids else None


def memory_mb(pid: int) -> float | None:
    """The memory of a process, with its part of what it shares with others; None if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), None)


def sampled(scene: Scene) -> dict[str, list[float]]:
    """What processes of the first query, and brokers, hold; a process that has just ended is left out."""
    program = scene.query.program
    jvms = [pid for pid in program.pids() if b"java" in command(pid).split(b"\0")[0]]
    of = {
        "driver JVM": jvms[:1],
        "reader process": program.readers()[:1],
        "Python workers": sorted(scene.query.workers()),
    }
    brokers = {f"broker {node.number}": node.process.pid for node in scene.kafka.nodes if node.process is not None}
    found = {name: held(pids) for name, pids in (of | {name: [pid] for name, pid in brokers.items()}).items()}
    return {name: values for name, values in found.items() if values is not None}


class Sampler:
    """A thread that samples; a context manager."""

    def __init__(self, scene: Scene, kept: Kept, piece: int, hours_before: float) -> None:
        self._scene, self._kept = scene, kept
        self._piece, self._before = piece, hours_before
        self._began = time.monotonic()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def hours(self) -> float:
        """Of all pieces."""
        return self._before + (time.monotonic() - self._began) / 3600

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.wait(EVERY_S):
            lag = None
            with contextlib.suppress(OSError, ValueError):  # a process that starts has said nothing
                lag = self._scene.query.lag()
            sample = {"hours": round(self.hours, 4), "piece": self._piece, "lag": lag, "of": sampled(self._scene)}
            self._kept.note(self._scene, sample)


# A run


def begun(folder: Path, seed: int | None) -> Kept:
    """A new run, in place of an older one."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    kept = Kept(folder)
    drawn = random.randrange(2**31) if seed is None else seed
    topic = f"endurance-{uuid.uuid4().hex[:8]}"
    kept.state = {"seed": drawn, "topic": topic, "started": 0, "pieces": [], "storms": 0, "kinds": {}, "findings": []}
    kept.save()
    return kept


def topic_of(kafka: KafkaCluster, name: str) -> int:
    """The topic's partitions; it is made if there is none."""
    if name not in kafka.admin.list_topics():
        kafka.create_topic(name, partitions=PARTITIONS)
    (found,) = kafka.admin.describe_topics([name])
    return len(found["partitions"])


def piece(kept: Kept, until_h: float) -> list[Finding]:
    """Run until there are so many hours, or a signal comes; then judge all pieces. Returns the findings."""
    state = kept.state
    state["started"] += 1  # also pieces that were killed: their records have its number in their names
    number = state["started"]
    kept.save()
    before = max((one["hours"] for one in growth.read(kept.samples)), default=0.0)
    seed = state["seed"]
    queries = kept.folder / "queries"
    queries.mkdir(exist_ok=True)
    kept.end_programs()
    print(f"endurance, piece {number}, from {before:.2f} to {until_h:.2f} h, seed {seed}, in {kept.folder}", flush=True)
    with proxied(directory=kept.folder / "kafka", properties=PROPERTIES) as kafka:
        partitions = topic_of(kafka, state["topic"])
        scene = Scene(kafka, queries, GROUPKAFKA, seed, state["topic"], partitions, SESSION_S)
        by_proxies(scene)
        for ending in (signal.SIGTERM, signal.SIGINT):
            signal.signal(ending, lambda *_: scene.ending.set())
        try:
            scene.add_query(OPTIONS, "parquet", "--trigger", "3 seconds")
            load = Load(kafka.bootstrap_servers, scene.topics, PER_SECOND, named=f"piece{number}p")
            kept.restore(scene, load)
            scene.begin(load)
            if (queries / "query1").exists():
                second(scene)
            lanes = without(LANES, ENDS_THE_DRIVER + LEAKS_IN_SPARK)
            with Sampler(scene, kept, number, before) as sampler:
                while sampler.hours < until_h and not scene.ending.is_set():
                    left_s = max(5.0, (until_h - sampler.hours) * 3600)
                    storm(scene, state["storms"], lanes, min(STORM_S, left_s), CALM)
                    state["storms"] += 1
                    kept.save()
                hours = sampler.hours
                scene.rest()
            kept.note(scene, {"hours": round(hours, 4), "piece": number, "lag": 0, "of": {}})
            scene.end()
            run = gathered(scene, "parquet")
            found = findings_of(run)
        finally:
            scene.close()
    state["pieces"].append(
        {"hours": round(hours - before, 3), "code": code_version(), "date": time.strftime("%Y-%m-%d")}
    )
    state["kinds"] = dict(sorted((Counter(state["kinds"]) + scene.kinds).items()))
    state["at_once"] = max(state.get("at_once", 0), scene.at_once)
    state["findings"] += [asdict(one) for one in found if one.invariant in OF_A_PIECE]
    values = Counter(row.value for row in run.rows)
    state["counted"] = {
        "records": len(run.acknowledged),
        "rows": len(run.rows),
        "lost": sum(one.records for one in found if one.invariant == "nothing missing"),
        "twice": sum(count - 1 for count in values.values()),
        "batches": sum(batch.done_ms is not None for batch in run.batches),
        "commits": sum(stored.offset is not None for stored in run.stored),
    }
    state["judged"] = [asdict(one) for one in found if one.invariant not in OF_A_PIECE]
    kept.save()
    return found


def result(kept: Kept) -> dict[str, Any]:
    """All that is known of a run, judged or not."""
    samples = growth.read(kept.samples)
    state = kept.state
    return {
        "hours": samples[-1]["hours"] if samples else 0.0,
        "growth": [asdict(one) for one in growth.judged(samples)],
        **{name: state.get(name) for name in ("seed", "pieces", "storms", "kinds", "at_once", "counted")},
        "findings": state["findings"] + state.get("judged", []),
    }


def told(kept: Kept) -> list[str]:
    """What a run has shown so far."""
    found = result(kept)
    lines = [f"{found['hours']:.2f} hours, {found['storms']} storms, {sum(found['kinds'].values())} faults"]
    if found["counted"]:
        lines.append(", ".join(f"{name} {count}" for name, count in found["counted"].items()))
    else:
        lines.append("no piece has been judged: --resume goes on, and judges all of it")
    lines += [f"violation: {one['invariant']}: {one['problem']}" for one in found["findings"]]
    return lines + growth.table(growth.Growth(**one) for one in found["growth"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=8.0, help="of all pieces together")
    parser.add_argument("--seed", type=int, help="drawn and printed if not given")
    parser.add_argument("--resume", action="store_true", help="go on with the run in the folder")
    parser.add_argument("--report", action="store_true", help="run nothing; say what the run in the folder has shown")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    args = parser.parse_args()
    folder = args.folder.resolve()
    if args.report or args.resume:
        kept = Kept(folder)
        if not kept.state:
            parser.error(f"there is no run in {folder}")
    else:
        kept = begun(folder, args.seed)
    found = [] if args.report else piece(kept, args.hours)
    print("\n".join(told(kept)), flush=True)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "endurance.json").write_text(json.dumps(result(kept), indent=1) + "\n")
    report.write(samples=growth.read(kept.samples))
    return 1 if found or result(kept)["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
