"""Several queries in one group, and queries that read what there is and end."""

from __future__ import annotations

from faults.cells.drivers import driver_kill
from faults.cells.registry import cell
from faults.evidence import GROUPKAFKA, Ending
from faults.running import Query
from faults.scene import PROGRESS, Scene, now_ms

QUERY = "query"
BY_THE_GROUP = {"startingOffsets": "group", "kafka.auto.offset.reset": "earliest"}


def second(scene: Scene) -> None:
    """A second query of the group, with a checkpoint and a sink of its own, which reads what it gets."""
    if len(scene.queries) == 1:
        scene.add_query(BY_THE_GROUP, "parquet")
    query = scene.queries[1]
    query.start()
    events = query.directory / "events" / f"{query.name}.jsonl"
    scene.wait(lambda: events.exists() and '"committed"' in events.read_text())


@cell(QUERY, "a second query of the group starts, reads, and is ended by SIGTERM", sources=(GROUPKAFKA,))
def second_query_leaves(scene: Scene) -> None:
    with scene.fault("a second query joins, and leaves"):
        second(scene)
        scene.queries[1].note_interrupted()
        scene.left += scene.queries[1].stop()


@cell(QUERY, "a second query of the group starts, reads, and is killed", sources=(GROUPKAFKA,))
def second_query_killed(scene: Scene) -> None:
    with scene.fault("a second query joins, and is killed"):
        second(scene)
        scene.pause(2)
        scene.queries[1].kill()


def again(scene: Scene) -> float:
    """Read all that there is, and end; returns when the query had started."""
    query = scene.query
    query.launch("--available-now")
    scene.wait(lambda: query.started() or not query.running)
    started = now_ms()
    code = query.program.ends(180)
    if code != 0:
        query.ended_by_itself(wanted=False)
    else:
        at_its_end(query)
    return started


def at_its_end(query: Query) -> None:
    """The process has read all that there was."""
    query.up = False
    query.endings.append(Ending(query.name, "stopped at the end", wanted=True))


@cell(QUERY, "the program reads all that there is, and ends: availableNow, again and again", at_rest=again)
def available_now(scene: Scene) -> None:
    if scene.query.running:
        scene.left += scene.query.stop()
    backlog(scene)
    began = now_ms()
    scene.ran_to_its_end("a run with availableNow", began, again(scene))


@cell(QUERY, "as available-now, and each second run is killed", at_rest=again)
def available_now_killed(scene: Scene) -> None:
    query = scene.query
    if query.running:
        scene.left += query.stop()
    backlog(scene)
    began = now_ms()
    query.launch("--available-now")
    query.wait_for(query.started)
    scene.pause(3)
    if query.running:
        query.kill()
    else:
        at_its_end(query)
    backlog(scene)
    scene.ran_to_its_end("a run with availableNow that is killed, and one that is not", began, again(scene))


def backlog(scene: Scene) -> None:
    """Wait until there are records for a run, more than a thousand."""
    before = len(scene.load.acknowledged)
    scene.wait(lambda: len(scene.load.acknowledged) - before > 2 * PROGRESS)


def with_a_second_source(scene: Scene) -> None:
    """The query has two sources in one group, with a topic each."""
    also = f"{scene.topic}-also"
    scene.kafka.create_topic(also, partitions=2)
    scene.topics[also] = 2
    scene.arguments += ["--also", also]


@cell(QUERY, "SIGKILL of a program whose query has two sources in one group", prepare=with_a_second_source)
def two_sources_driver_kill(scene: Scene) -> None:
    driver_kill(scene)
