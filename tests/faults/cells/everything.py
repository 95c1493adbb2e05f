"""Everything at once: faults drawn from a seed, several at the same time; then all is mended, and the query goes on.

Each lane of faults is a thread. A storm ends when the last fault of each lane is over. What the queries say if they end
by themselves is a finding: no fault here is one that may end them, but those that kill.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import traceback
from collections.abc import Iterable

from kafka.errors import KafkaError

from faults.cells.acts import ACTS, OPTIONS, fenced_by_the_dead, not_needed, up_again
from faults.cells.network import by_proxies, proxied
from faults.cells.registry import cell
from faults.evidence import GROUPKAFKA
from faults.running import Query
from faults.scene import Scene
from faults.storm import Kind, Lane, Step, drawn, most_at_once, without

EVERYTHING = "everything"
STORM_S = 35.0
"""Faults begin in so many seconds. With their ends, and the query's first thousand records, it is about a minute."""
PROPERTIES = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}

LANES = (
    Lane("driver", 20, [
        Kind("driver-kill", 3), Kind("driver-kill-at-a-point", 3, 5, 15), Kind("jvm-kill", 2), Kind("reader-kill", 2),
        Kind("driver-term", 2), Kind("driver-pause", 4, 2, 15), Kind("driver-zombie", 1),
    ]),
    Lane("worker", 20, [Kind("worker-kill"), Kind("worker-daemon-kill"), Kind("worker-pause", 1, 2, 10)]),
    Lane("broker", 12, [
        Kind("leader-kill", 2, 1, 6), Kind("coordinator-kill", 2, 1, 6), Kind("controller-kill", 1, 1, 6),
        Kind("broker-restart", 1), Kind("broker-pause", 2, 2, 12),
    ]),
    Lane("network", 12, [
        Kind("proxies-cut", 2, 2, 8), Kind("proxies-delay", 1, 2, 8), Kind("proxies-throttle", 1, 2, 8),
        Kind("proxies-silent", 1, 1, 12),
    ]),
    Lane("neighbour 1", 15, [Kind("kafka-python-visits", 1, 4, 20), Kind("confluent-kafka-visits", 1, 4, 20)]),
    Lane("neighbour 2", 40, [Kind("confluent-kafka-visits", 1, 4, 20), Kind("java-visits", 1, 6, 20)]),
    Lane("query", 60, [Kind("second-query-visits", 1, 3, 15)]),
    Lane("operator", 15, [
        Kind("operator-describes", 2), Kind("operator-reads-lag", 2), Kind("operator-reads-offsets", 1),
        Kind("partition-added", 0.5), Kind("committed-records-deleted", 1),
    ]),
    Lane("transaction", 12, [Kind("transaction")]),
)  # fmt: skip
OF_A_GROUP = ("coordinator-kill", "reader-kill", "driver-kill-at-a-point", "worker-kill", "worker-daemon-kill",
              "worker-pause", "kafka-python-visits", "confluent-kafka-visits", "java-visits", "second-query-visits",
              "operator-describes", "operator-reads-lag", "operator-reads-offsets",
              "committed-records-deleted")  # fmt: skip
"""What Spark's own source cannot have: it has no group, and no processes of Python."""


class Storm:
    """Faults of all lanes, in a thread each."""

    def __init__(self, scene: Scene, steps: Iterable[Iterable[Step]]) -> None:
        self._scene = scene
        self._began = time.monotonic()
        self.spans: list[tuple[Step, float, float]] = []
        self._threads = [threading.Thread(target=self._lane, args=(list(lane),), daemon=True) for lane in steps]

    def rage(self) -> None:
        """Begin; and wait until all is over."""
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join()
        self._keep_up(self._scene.query)

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _lane(self, steps: list[Step]) -> None:
        for step in steps:
            if step.lane == "driver":
                self._watch(step.at_s)
            if self._scene.ending.wait(max(0.0, step.at_s - self._now())):
                return
            began = self._now()
            try:
                ACTS[step.kind](self._scene, step)
            except KafkaError as error:  # of a client of the run's own, which could not do it
                print(f"     {step.kind} did not work: {type(error).__name__}: {str(error)[:200]}", flush=True)
            except Exception as error:  # noqa: BLE001 - it is a finding of this run
                self._problem(step, error)
            self.spans.append((step, began, self._now()))

    def _watch(self, until_s: float) -> None:
        """Start the query again if it ends by itself, which is a finding."""
        while True:
            self._keep_up(self._scene.query)
            if self._now() >= until_s or self._scene.ending.wait(0.1):
                return

    def _keep_up(self, query: Query) -> None:
        if query.running:
            return
        if query.up:  # else a fault has failed that was to start it again
            wanted = fenced_by_the_dead(query)
            print(f"     {query.ended_by_itself(wanted)[:400]}", flush=True)
        with contextlib.suppress(RuntimeError):
            up_again(query)

    def _problem(self, step: Step, error: Exception) -> None:
        text = f"{step.kind}: {type(error).__name__}: {str(error)[:600]}"
        print(f"     {text}", flush=True)
        self._scene.problems.append(text)
        with (self._scene.directory / "errors").open("a") as file:
            file.write(f"{step}\n{''.join(traceback.format_exception(error))}\n")


def storm(scene: Scene, number: int, lanes: Iterable[Lane], seconds: float, calm: float = 1.0) -> None:
    """A storm; and then 1,000 records have to be done in time."""
    steps = drawn(f"{scene.seed} {number}", lanes, seconds, calm)
    if not any(steps.values()):
        return
    count = sum(map(len, steps.values()))
    if scene.source == GROUPKAFKA:
        # As long before a deletion as a storm: a batch that a stopped process planned may come to the checkpoint late.
        scene.room["not needed"] = not_needed(scene)
    with scene.fault(f"storm {number}: {count} faults in {seconds:.0f} s"):
        raging = Storm(scene, steps.values())
        raging.rage()
        for step, _, _ in raging.spans:
            scene.kinds[step.kind] += 1
        scene.at_once = max(scene.at_once, most_at_once((begin, end) for _, begin, end in raging.spans))
        with (scene.directory / "storms.jsonl").open("a") as file:
            for step, begin, end in sorted(raging.spans, key=lambda span: span[1]):
                said = {"storm": number, "kind": step.kind, "choice": step.choice, "drawn": round(step.at_s, 2)}
                file.write(json.dumps(said | {"began": round(begin, 2), "over": round(end, 2)}) + "\n")


def lanes_of(source: str, lanes: Iterable[Lane] = LANES) -> list[Lane]:
    """The faults that a source can have."""
    return list(lanes) if source == GROUPKAFKA else without(lanes, OF_A_GROUP)


@cell(
    EVERYTHING,
    "random faults of every family, several at the same time, for about a minute; then all is mended",
    count=30,
    at_once=30,
    per_second=250,
    nodes=3,
    brokers=lambda: proxied(properties=PROPERTIES),
    prepare=by_proxies,
    options=OPTIONS,
)
def everything(scene: Scene) -> None:
    storm(scene, len(scene.faults), lanes_of(scene.source), STORM_S)
