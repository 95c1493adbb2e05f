"""Members that come, go and die at random share a group correctly; and the judge reports every mistake."""

import json
import os

import pytest

from faults import chaos
from faults.evidence import CLEANLY
from faults.gather import rows_in
from faults.neighbours import Said, events_of

PLAYED = {"seconds": 20, "batch_seconds": 0.3}


def check(verdict):
    assert not verdict.findings, chaos.tell(verdict)


@pytest.mark.parametrize("seconds", [10, pytest.param(60, marks=pytest.mark.soak)])
def test_three_queries_that_come_and_go_read_every_record_once(kafka, tmp_path, seconds):
    verdict = chaos.play(kafka, tmp_path, seed=1, queries=3, **PLAYED | {"seconds": seconds})
    check(verdict)
    assert verdict.summary["read twice"] == 0
    assert verdict.summary["read"] == verdict.summary["records"] > 0


@pytest.mark.soak
def test_among_java_and_python_consumers_kills_repeat_nothing_but_the_batches_they_hit(kafka, tmp_path):
    mixed = {"queries": 2, "java": 1, "python": 1, "strategy": "cooperative-sticky", "kill": True}
    verdict = chaos.play(kafka, tmp_path, seed=5, **mixed, **PLAYED)
    check(verdict)
    assert verdict.summary["ended killed"] > 0


# What is wrong is found, by the files of a run


def event(time_ms, kind, member, generation, **more):
    return {"time_ms": time_ms, "event": kind, "group": "g", "member": member, "generation": generation} | more


def assigned(time_ms, member, generation, *partitions):
    return event(time_ms, "assigned", member, generation, partitions={"t": list(partitions)})


def planned(time_ms, member, generation, batch, start, end):
    return event(time_ms, "planned", member, generation, batch=batch, ranges={"t": {"0": [start, end]}})


def committed(time_ms, member, generation, batch, offset):
    return event(time_ms, "committed", member, generation, batch=batch, offsets={"t": {"0": offset}})


def stored(time_ms, **more):
    empty = {"generation": None, "members": {}, "names": {}, "tp": None, "offset": None, "note": None}
    return {"time_ms": time_ms} | empty | more


def commit(time_ms, reader, generation, offset):
    note = {"reader": reader, "generation": generation, "batch": 0}
    return stored(time_ms, tp=["t", 0], offset=offset, note=note)


def generation(time_ms, number, **partitions):
    """A generation with members by their queries' ids."""
    members = {f"{reader}-id": [["t", p] for p in some] for reader, some in partitions.items()}
    names = {f"{reader}-id": ["d", f"groupkafka-{reader}"] for reader in partitions}
    return stored(time_ms, generation=number, members=members, names=names)


def rows(start, end):
    return [["t", 0, offset, f"r{offset}"] for offset in range(start, end)]


def batch(reader, number, end):
    return f'v1\n{{}}\n{{"t": {{"0": {end}}}, "@group": {{"generation": 1, "batch": {number}, "reader": "{reader}"}}}}'


def a_run():
    """Query a reads the first half, query b the second. Files of one line are text."""
    return {
        "produced.jsonl": [{"partition": 0, "offset": n, "id": f"r{n}"} for n in range(20)],
        "stored.jsonl": [
            generation(0, 1, a=[0]), commit(3, "a", 1, 10), generation(4, 2, b=[0]), commit(7, "b", 2, 20),
        ],
        "end.json": {
            "group": "g", "topic": "t", "problems": [],
            "endings": [{"process": "a.1-1", "how": CLEANLY}, {"process": "b.1-1", "how": CLEANLY}],
        },
        "queries/a.1/events/a.1-1.jsonl": [
            assigned(1, "a", 1, 0), planned(2, "a", 1, 0, 0, 10), committed(3, "a", 1, 0, 10),
        ],
        "queries/b.1/events/b.1-1.jsonl": [
            assigned(5, "b", 2, 0), event(5, "moved", "b", 2, positions={"t": {"0": {"from": None, "to": 10}}}),
            planned(6, "b", 2, 0, 10, 20), committed(7, "b", 2, 0, 20),
        ],
        "queries/a.1/out/0": rows(0, 10),
        "queries/b.1/out/0": rows(10, 20),
        "queries/a.1/checkpoint/offsets/0": batch("a", 0, 10),
        "queries/b.1/checkpoint/offsets/0": batch("b", 0, 20),
        "queries/a.1/checkpoint/commits/0": "v1\n{}",
        "queries/b.1/checkpoint/commits/0": "v1\n{}",
    }  # fmt: skip


def found(run, directory):
    for name, content in run.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("jsonl"):
            chaos.write(directory / name, content)
        else:
            (directory / name).write_text(content if isinstance(content, str) else json.dumps(content))
        os.utime(directory / name, (0, 0))  # batches were done before their commits
    return chaos.tell(chaos.judge(directory)).rpartition("\n")[0]


def overlap(run):
    run["queries/b.1/events/b.1-1.jsonl"][2] = planned(6, "b", 2, 0, 5, 20)


def read_twice(run):
    run["queries/b.1/out/0"] = rows(9, 20)


def leave_a_record_out(run):
    run["queries/a.1/out/0"] = rows(0, 9)


def read_something_else(run):
    run["queries/a.1/out/0"][3][3] = "r4"


def commit_backward(run):
    run["stored.jsonl"].append(commit(8, "b", 2, 12))


def commit_of_an_unknown_program_backward(run):
    run["stored.jsonl"].append(stored(8, tp=["t", 0], offset=12))


def remove_an_offset(run):
    run["stored.jsonl"].append(stored(8, tp=["t", 0]))


def commit_of_an_old_generation(run):
    run["stored.jsonl"][3] = commit(7, "b", 1, 20)


def two_owners(run):
    run["stored.jsonl"][2] = generation(4, 2, b=[0], c=[0])


def assigned_otherwise(run):
    run["stored.jsonl"][2] = generation(4, 2, b=[])


def never_stored(run):
    del run["stored.jsonl"][2]


def left_unread(run):
    run["produced.jsonl"].append({"partition": 0, "offset": 20, "id": "r20"})


def a_member_that_failed(run):
    run["end.json"]["problems"] = ["a.1-1 was asked to end cleanly, and ended with 1"]


SABOTAGE = [
    (overlap, "one after another: b committed t-0[5,20), where 10 was to be next"),
    (read_twice, "nothing twice: the sink has 1 rows too many: r9 at ('t', 0, 9) in batches [(0, 0), (1, 0)]"),
    (leave_a_record_out, "nothing missing: the sink lacks 1 rows: r9"),
    (
        read_something_else,
        "nothing else: the sink has 1 rows of no record: Row(batch=0, topic='t', partition=0,",
    ),
    (commit_backward, "never backward: as the coordinator has it, "),
    (commit_of_an_unknown_program_backward, "never backward: as the coordinator has it, "),
    (remove_an_offset, "never backward: the offset of ('t', 0) was removed"),
    (commit_of_an_old_generation, "current generation: ('t', 0)=20 was committed under"),
    (two_owners, "one owner: as the coordinator has it, t-0 was assigned to b-id and to c-id in generation 2"),
    (assigned_otherwise, "b was assigned ['t-0'] in generation 2, the coordinator has []"),
    (never_stored, "b was assigned ['t-0'] in generation 2, the coordinator has no such member"),
    (left_unread, "read to the end: the sink lacks 1 rows: r20"),
    (a_member_that_failed, "run: a.1-1 was asked to end cleanly, and ended with 1"),
]


def test_a_run_as_it_should_be_violates_nothing(tmp_path):
    assert found(a_run(), tmp_path) == ""


@pytest.mark.parametrize(("sabotage", "message"), SABOTAGE, ids=lambda value: getattr(value, "__name__", ""))
def test_one_wrong_thing_is_found(tmp_path, sabotage, message):
    run = a_run()
    sabotage(run)
    assert message in found(run, tmp_path)


@pytest.mark.parametrize(("how", "excused"), [("killed", True), ("at once", True), (CLEANLY, False)])
def test_only_the_last_batch_of_a_query_that_was_killed_may_come_twice(tmp_path, how, excused):
    run = a_run()
    run["end.json"]["endings"][0]["how"] = how
    run["queries/a.1/events/a.1-1.jsonl"].append(planned(3.5, "a", 1, 1, 10, 12))
    run["queries/a.1/checkpoint/offsets/1"] = batch("a", 1, 12)
    run["queries/a.1/out/1"] = rows(10, 12)
    assert (found(run, tmp_path) == "") is excused
    run["queries/a.1/out/0"] = rows(0, 11)  # more than it planned, and it was committed
    assert "nothing twice" in found(run, tmp_path)


def by_a_consumer(name):
    """The second half of the run is read by a consumer: what it prints."""
    run = a_run()
    for file in [file for file in run if file.startswith("queries/b.1/")]:
        del run[file]
    run["end.json"]["endings"][1]["process"] = name
    run["stored.jsonl"][2] = stored(4, generation=2, members={"j": [["t", 0]]}, names={"j": [name]})
    run["stored.jsonl"][3] = stored(7, tp=["t", 0], offset=20)
    zero = {"topic": "t", "partition": 0}
    read = zero | {"count": 10, "minOffset": 10, "maxOffset": 19}
    lines = run[f"neighbours/{name}.jsonl"] = [
        {"timestamp": 5, "name": "partitions_assigned", "partitions": [zero]},
        *({"timestamp": 6, "name": "record_data", "value": f"r{n}", "offset": n} | zero for n in range(10, 20)),
        {"timestamp": 6, "name": "records_consumed", "count": 10, "partitions": [read]},
        {"timestamp": 7, "name": "offsets_committed", "success": True, "offsets": [zero | {"offset": 20}]},
    ]
    return run, lines, read


def test_what_a_consumer_prints_is_placed_in_the_generation_it_was_assigned_in(tmp_path):
    run, lines, read = by_a_consumer("java0-1")
    assert found(run, tmp_path) == ""
    read["minOffset"] = 9
    assert "java0-1 committed t-0[9,20), where 10 was to be next" in found(run, tmp_path)
    lines[0]["partitions"] = []
    assert "java0-1 was assigned [] in generation 2, the coordinator has [('t', 0)]" in found(run, tmp_path)


def test_a_line_of_javas_other_thread_among_the_records_of_a_poll_takes_none_of_them_away(tmp_path):
    one = {"topic": "t", "partition": 0}

    def data(offset):
        return {"timestamp": 6, "name": "record_data", "key": None, "value": f"r{offset}", "offset": offset} | one

    def polled(first, last):
        read = one | {"count": last - first + 1, "minOffset": first, "maxOffset": last}
        return {"timestamp": 6, "name": "records_consumed", "count": read["count"], "partitions": [read]}

    shutdown = {"timestamp": 6, "name": "shutdown_requested"}
    chaos.write(tmp_path / "out", [data(0), data(1), polled(0, 1), data(2), shutdown, data(3), polled(2, 3), data(4)])
    said = Said(tmp_path / "out")
    assert [value for _, value in said.in_doubt()] == ["r0", "r1", "r2", "r3", "r4"]
    events = list(events_of(said, [], "g", "java0-1", newer=False))
    assert [(event.batch, str(event.ranges[0])) for event in events] == [(0, "t-0[0,2)"), (1, "t-0[2,4)")]


def test_what_a_consumer_of_the_newer_protocol_prints_adds_up_and_has_no_generation(tmp_path):
    run, lines, _ = by_a_consumer("javanewer0-1")
    zero, one = {"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}
    lines.insert(1, {"timestamp": 5, "name": "partitions_assigned", "partitions": [one]})
    assert found(run, tmp_path) == ""
    lines.insert(2, {"timestamp": 5, "name": "partitions_revoked", "partitions": [zero]})
    assert "javanewer0-1 planned t-0[10,20) after t-0 was revoked" in found(run, tmp_path)


def test_of_a_query_without_spark_the_last_rows_of_a_batch_count(tmp_path):
    (tmp_path / "3").write_text(json.dumps(rows(0, 2)))
    assert [(row.batch, row.value, row.query) for row in rows_in(tmp_path, 1)] == [(3, "r0", 1), (3, "r1", 1)]
