"""Members that come, go and die at random share a group correctly; and the judge reports every mistake."""

import pytest

from faults import chaos, java_events, stored
from faults.chaos_judge import gather, judge

PLAYED = {"seconds": 20, "batch_seconds": 0.3}


def check(verdict):
    assert not verdict.violations, chaos.tell(verdict)


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


# What is wrong is found


def event(time_ms, kind, member, generation, **more):
    return {"time_ms": time_ms, "event": kind, "group": "g", "member": member, "generation": generation} | more


def assigned(time_ms, member, generation, *partitions):
    return event(time_ms, "assigned", member, generation, partitions={"t": list(partitions)})


def planned(time_ms, member, generation, batch, start, end):
    return event(time_ms, "planned", member, generation, batch=batch, ranges={"t": {"0": [start, end]}})


def committed(time_ms, member, generation, batch, offset):
    return event(time_ms, "committed", member, generation, batch=batch, offsets={"t": {"0": offset}})


def commit(offset):
    return {"topic": "t", "partition": 0, "offset": offset, "metadata": ""}


def member_of(reader, *partitions):
    instance_id = f"groupkafka-{reader}"
    assignment = {"t": list(partitions)} if partitions else {}
    return {"member_id": f"{reader}-id", "instance_id": instance_id, "client_id": "d", "partitions": assignment}


def rows(batch, start, end):
    return {"batch": batch, "rows": [[0, offset, f"r{offset}"] for offset in range(start, end)]}


def a_run():
    """Query a reads the first half, query b the second."""
    return {
        "produced.jsonl": [{"partition": 0, "offset": n, "id": f"r{n}"} for n in range(20)],
        "endings.jsonl": [{"process": "a.1-1", "how": "cleanly"}, {"process": "b.1-1", "how": "cleanly"}],
        "commits.jsonl": [commit(10), commit(20)],
        "generations.jsonl": [
            {"generation": 1, "protocol": "range", "time_ms": 0, "members": [member_of("a", 0)]},
            {"generation": 2, "protocol": "range", "time_ms": 4, "members": [member_of("b", 0)]},
        ],
        "events/a.1-1.jsonl": [assigned(1, "a", 1, 0), planned(2, "a", 1, 0, 0, 10), committed(3, "a", 1, 0, 10)],
        "events/b.1-1.jsonl": [assigned(5, "b", 2, 0), planned(6, "b", 2, 0, 10, 20), committed(7, "b", 2, 0, 20)],
        "rows/a.1.jsonl": [rows(0, 0, 10)],
        "rows/b.1.jsonl": [rows(0, 10, 20)],
    }


def found(run, directory):
    for name, lines in run.items():
        (directory / name).parent.mkdir(exist_ok=True)
        stored.write(directory / name, lines)
    (directory / "end.json").write_text("[]")
    return "\n".join(judge(gather(directory)).violations)


def overlap(run):
    run["events/b.1-1.jsonl"][1] = planned(6, "b", 2, 0, 5, 20)


def read_twice(run):
    run["rows/b.1.jsonl"] = [rows(0, 9, 20)]


def leave_a_record_out(run):
    run["rows/a.1.jsonl"] = [rows(0, 0, 9)]


def read_something_else(run):
    run["rows/a.1.jsonl"][0]["rows"][3][2] = "r4"


def commit_backward(run):
    run["commits.jsonl"].append(commit(12))


def two_owners(run):
    run["generations.jsonl"][1]["members"].append(member_of("c", 0))


def assigned_otherwise(run):
    run["generations.jsonl"][1]["members"] = [member_of("b")]


SABOTAGE = [
    (overlap, "one after another: b committed t-0[5,20), where 10 was to be next"),
    (read_twice, "1 records were read twice, by a.1 batch 0 (committed) and b.1 batch 0 (committed): 0:9"),
    (leave_a_record_out, "1 records were read by no member: 0:9"),
    (read_something_else, "a.1 batch 0: other records than those at 0:3"),
    (commit_backward, "committed t-0=12"),
    (two_owners, "generation 2 gives t-0 to b-id and c-id"),
    (assigned_otherwise, "b was assigned t-0 in generation 2, the coordinator has nothing"),
]


def test_a_run_as_it_should_be_violates_nothing(tmp_path):
    assert found(a_run(), tmp_path) == ""


@pytest.mark.parametrize(("sabotage", "message"), SABOTAGE, ids=lambda value: getattr(value, "__name__", ""))
def test_one_wrong_thing_is_found(tmp_path, sabotage, message):
    run = a_run()
    sabotage(run)
    assert message in found(run, tmp_path)


@pytest.mark.parametrize(("how", "excused"), [("killed", True), ("at once", True), ("cleanly", False)])
def test_only_the_last_batch_of_a_query_that_was_killed_may_come_twice(tmp_path, how, excused):
    run = a_run()
    run["endings.jsonl"][0]["how"] = how
    run["events/a.1-1.jsonl"].append(planned(3.5, "a", 1, 1, 10, 12))
    run["rows/a.1.jsonl"].append(rows(1, 10, 12))
    assert (found(run, tmp_path) == "") is excused
    run["rows/a.1.jsonl"].append(rows(0, 0, 11))  # more than it planned, and it was committed
    assert "read twice, by a.1 batch 0" in found(run, tmp_path)


def test_what_a_java_consumer_prints_is_placed_in_the_generation_it_was_assigned_in(tmp_path):
    run = a_run()
    del run["events/b.1-1.jsonl"], run["rows/b.1.jsonl"]
    run["generations.jsonl"][1]["members"] = [
        {"member_id": "j", "instance_id": None, "client_id": "java0-1", "partitions": {"t": [0]}}
    ]
    run["endings.jsonl"][1]["process"] = "java0-1"
    one, data = {"topic": "t", "partition": 0}, []
    for n in range(10, 20):
        data.append({"timestamp": 6, "name": "record_data", "key": None, "value": f"r{n}", "offset": n} | one)
    summary = one | {"count": 10, "minOffset": 10, "maxOffset": 19}
    run["java/java0-1.jsonl"] = [
        {"timestamp": 5, "name": "partitions_assigned", "partitions": [one]},
        *data,
        {"timestamp": 6, "name": "records_consumed", "count": 10, "partitions": [summary]},
        {"timestamp": 7, "name": "offsets_committed", "success": True, "offsets": [one | {"offset": 20}]},
    ]
    assert found(run, tmp_path) == ""
    summary["minOffset"] = 9
    assert "java0-1 committed t-0[9,20), where 10 was to be next" in found(run, tmp_path)


def test_a_line_of_javas_other_thread_among_the_rows_of_a_poll_takes_none_of_them_away():
    one = {"topic": "t", "partition": 0}

    def data(offset):
        return {"timestamp": 6, "name": "record_data", "key": None, "value": f"r{offset}", "offset": offset} | one

    def polled(first, last):
        read = one | {"count": last - first + 1, "minOffset": first, "maxOffset": last}
        return {"timestamp": 6, "name": "records_consumed", "count": read["count"], "partitions": [read]}

    shutdown = {"timestamp": 6, "name": "shutdown_requested"}
    objs = [data(0), data(1), polled(0, 1), data(2), shutdown, data(3), polled(2, 3), data(4)]
    _, rows = java_events.convert(objs, [], "g", "java0-1")
    assert [[offset for _, offset, _ in batch["rows"]] for batch in rows] == [[0, 1], [2, 3], [4]]
    assert [batch["batch"] for batch in rows] == [0, 1, 2]


def test_what_a_newer_java_consumer_prints_adds_up_and_has_no_generation(tmp_path):
    run = a_run()
    del run["events/b.1-1.jsonl"], run["rows/b.1.jsonl"]
    run["endings.jsonl"][1]["process"] = "javanewer0-1"
    zero, one = {"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}
    data = [
        {"timestamp": 6, "name": "record_data", "key": None, "value": f"r{n}", "offset": n} | zero
        for n in range(10, 20)
    ]
    read = zero | {"count": 10, "minOffset": 10, "maxOffset": 19}
    lines = run["java/javanewer0-1.jsonl"] = [
        {"timestamp": 5, "name": "partitions_assigned", "partitions": [zero]},
        {"timestamp": 5, "name": "partitions_assigned", "partitions": [one]},
        *data,
        {"timestamp": 6, "name": "records_consumed", "count": 10, "partitions": [read]},
        {"timestamp": 7, "name": "offsets_committed", "success": True, "offsets": [zero | {"offset": 20}]},
    ]
    assert found(run, tmp_path) == ""
    lines.insert(2, {"timestamp": 5, "name": "partitions_revoked", "partitions": [zero]})
    assert "javanewer0-1 planned t-0[10,20) after t-0 was revoked" in found(run, tmp_path)
