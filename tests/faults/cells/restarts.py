"""A query is started on another host, while the old one is only cut off: a zombie, once the link is back."""

from __future__ import annotations

import functools
import re
from typing import cast

from faults.cells.clusters import DRIVER, ON_HOSTS, SPARE, TASKS, driver_on, on_a_cluster
from faults.cells.network import Hosts, on_hosts
from faults.cells.registry import BOTH, Cell, add
from faults.evidence import GROUPKAFKA, Ending
from faults.programs.points import POINTS, disarm
from faults.scene import PROGRESS, Scene, now_ms

RESTART = "restart"
HOSTS = (DRIVER, SPARE)
ZOMBIE_ENDS_WITHIN_S = 120.0
SENTENCES = re.compile(r"another (process|driver)|CONCURRENT_STREAM_LOG_UPDATE|Race while writing batch|no broker")


def on_a_host(scene: Scene) -> None:
    driver_on(scene, DRIVER)


def restarted_elsewhere(scene: Scene, point: str | None = None) -> None:
    """Cut the driver's host off, start the query on the other one, and then mend the link."""
    network = cast(Hosts, scene.kafka).network
    query = scene.query
    here, there = HOSTS if len(scene.faults) % 2 == 0 else HOSTS[::-1]
    scene.pause(2)
    if point is not None:
        query.arm(point)
        query.wait_for(lambda: query.at(point), within=60)
    with scene.fault("the host of the program cut off, and a second process of it on another one", may_end=True):
        zombie = query.replaced()
        network.cut(here)
        try:
            driver_on(scene, there)
            query.start()
            since = now_ms()
            scene.wait(lambda: query.checkpoint.done_since(since) >= PROGRESS or not query.running)
        finally:
            network.mend(here)
        disarm(zombie.marks)  # on from the point
    scene.wait(zombie.ended, within=ZOMBIE_ENDS_WITHIN_S)
    code, line = zombie.program.process.returncode, zombie.last_line()
    query.endings.append(Ending(zombie.name, f"replaced, {code}, {line}", wanted=True))
    print(f"     {zombie.name} ended with {code}: {line[:300]}", flush=True)
    if not says_why(code, line):
        scene.problems.append(f"{zombie.name}, which was replaced, ended with {code}: {line}")


def says_why(code: int | None, line: str) -> bool:
    """Whether a process that was replaced has ended as it is to end: with an error, and a last line that names it."""
    return code == 1 and SENTENCES.search(line) is not None


def restart_cell(name: str, what: str, on_cluster: bool = False, point: str | None = None) -> None:
    def happen(scene: Scene) -> None:
        restarted_elsewhere(scene, point)

    add(
        Cell(
            RESTART,
            name,
            what,
            happen,
            nodes=3,
            sources=BOTH if point is None else (GROUPKAFKA,),
            options=TASKS if on_cluster else {},
            brokers=ON_HOSTS if on_cluster else functools.partial(on_hosts, *HOSTS),
            prepare=on_a_cluster if on_cluster else on_a_host,
        )
    )


WHAT = "the host of the program is cut off without a word, the query is started on another one, then the link is back"
restart_cell("restart-elsewhere", WHAT)
for each in ("planned", "tasks", "before-commit", "after-commit"):
    restart_cell(f"restart-elsewhere-{each}", f"{WHAT}; the old one goes on where {POINTS[each]}", point=each)
restart_cell("restart-elsewhere-cluster", f"{WHAT}; on a cluster, whose executors are not cut off", on_cluster=True)
