"""Each invariant holds in a run as it should be, and each can fail."""

import re
from collections import Counter
from dataclasses import replace

import pytest

from faults import ROOT
from faults.evidence import (
    ABORT,
    Acknowledged,
    Batch,
    Call,
    Dead,
    Ending,
    Fault,
    Observed,
    Output,
    Plan,
    Row,
    Shown,
    Stored,
)
from faults.judge import judged
from faults.judge.group import batches_follow
from faults.once.shapes import MAP, expected
from spark_kafka_group.tools.event_logs import Event, Move
from spark_kafka_group.values.offsets import OffsetRange, TopicPartition

TP = TopicPartition("t", 0)


def value(offset):
    return f"p0:t:0:{offset}"


def event(time_ms, kind, generation, process="query0-1", **more):
    return Event(time_ms, kind, "g", "a", generation, f"events/{process}.jsonl:{time_ms}", **more)


def plan(batch, *tasks, process="query0-1"):
    """A plan of tasks with one range each."""
    return Plan(process, "a", batch, [[task] for task in tasks])


def planned(time_ms, generation, batch, start, end, **more):
    return event(time_ms, "planned", generation, batch=batch, ranges=(OffsetRange(TP, start, end),), **more)


def committed(time_ms, generation, batch, offset):
    return event(time_ms, "committed", generation, batch=batch, offsets={TP: offset})


def commit(time_ms, offset, generation, batch):
    return Stored(time_ms, tp=TP, offset=offset, note={"reader": "a", "generation": generation, "batch": batch})


def generation(time_ms, number, **members):
    members = members or {"a-id": [TP]}
    return Stored(time_ms, generation=number, members=members, names={member: [member[0]] for member in members})


LATEST = {
    "t": {"0": 20},
    "@group": {
        "group": "g", "member": "a-id", "protocol": "classic", "generation": 2, "timestampMs": 100, "lag": 0,
        "assignedPartitions": 1, "positions": {"t": {"0": 20}}, "committed": {"t": {"0": 20}}, "commits": 2,
        "minOffsetsBehindLatest": 0, "maxOffsetsBehindLatest": 0, "avgOffsetsBehindLatest": 0.0,
    },
}  # fmt: skip


def shown(*sources, **group):
    """A run whose progress has another number."""
    latest = sources[0] if sources else LATEST
    return {"shown": replace(a_run().shown, sources=[latest | {"@group": LATEST["@group"] | group}])}


def a_run(**changed):
    """Two batches of ten records, under two generations."""
    acknowledged = [Acknowledged(value(n), "t", 0, n) for n in range(20)]
    events = [
        event(0, "assigned", 1, partitions=frozenset([TP])),
        event(0, "moved", 1, moves={TP: Move(None, 0)}),
        planned(1, 1, 0, 0, 10),
        committed(30, 1, 0, 10),
        event(31, "assigned", 2, partitions=frozenset([TP])),
        planned(32, 2, 1, 10, 20),
        committed(60, 2, 1, 20),
    ]
    run = Observed(
        source="groupkafka",
        sink="parquet",
        acknowledged=acknowledged,
        log={("t", 0, n): value(n) for n in range(20)},
        rows=[Row(n // 10, "t", 0, n, value(n)) for n in range(20)],
        batches=[Batch(0, {TP: 0}, {TP: 10}, 20, 1, 0, "a"), Batch(1, {TP: 10}, {TP: 20}, 50, 2, 1, "a")],
        events=events,
        plans=[plan(0, ["t", 0, 0, 4], ["t", 0, 4, 10]), plan(1, ["t", 0, 10, 20])],
        stored=[generation(0, 1), commit(30, 10, 1, 0), generation(31, 2), commit(60, 20, 2, 1)],
        committed={TP: 20},
        ended={TP: 20},
        ends={TP: 20},
        lag=0,
        shown=Shown([LATEST], 0, {0: ({TP: 10}, 10), 1: ({TP: 20}, 10)}),
        faults=[Fault("kill", 0, 1000, 1500, 2000, 25.0)],
        endings=[Ending("query-1", "killed", True)],
    )
    return replace(run, **changed)


GOOD = a_run()
OF_A_TOPIC = dict(GOOD.log)
EACH_ONCE = expected(MAP, GOOD.batches, OF_A_TOPIC)


def planned_as(*of_first):
    """A run with these plans of the first batch."""
    return {"plans": [*of_first, plan(1, ["t", 0, 10, 20])]}


RETRY, RETRY_LATER, WAIT_MS = "t-retry-100", "t-retry-300", {"t-retry-100": 100, "t-retry-300": 300}


def call(batch, topic, offset, name, at_ms, outcome, timestamp_ms=0):
    return Call(Row(batch, topic, 0, offset, name), timestamp_ms, at_ms, outcome)


def a_processor_run(**changed):
    """Four records in three topics: one is done, one at its second try, one in the second retry topic, one is dead."""
    calls = [
        call(0, "t", 0, "done", 10, "done"),
        call(0, "t", 1, "again", 10, "failed"),
        call(0, "t", 1, "again", 20, "done"),
        call(0, "t", 2, "later", 10, "failed"),
        call(0, "t", 2, "later", 20, "failed"),
        call(0, "t", 3, "never", 10, "fatal"),
        call(1, RETRY, 0, "later", 130, "failed", 30),
        call(1, RETRY, 0, "later", 140, "failed", 30),
        call(2, RETRY_LATER, 0, "later", 450, "done", 150),
    ]
    counts = [(4, 2, 1, 1, 2), (1, 0, 1, 0, 1), (1, 1, 0, 0, 0)]
    names = ("records", "done", "retried", "dead", "triesAgain")
    run = Observed(
        source="groupkafka",
        sink="processor",
        acknowledged=[Acknowledged(name, "t", 0, n) for n, name in enumerate(("done", "again", "later", "never"))],
        log={("t", 0, n): name for n, name in enumerate(("done", "again", "later", "never"))}
        | {(RETRY, 0, 0): "later", (RETRY_LATER, 0, 0): "later"},
        rows=[made.row for made in calls if made.outcome == "done"],
        calls=calls,
        dead=[Dead("never", 0)],
        delays=WAIT_MS,
        shown=Shown((), 0, {}, {n: dict(zip(names, of_batch, strict=True)) for n, of_batch in enumerate(counts)}),
    )
    return replace(run, **changed)


PROCESSED = a_processor_run()


def calls_but(index, *instead):
    """Other calls in place of one."""
    return [*PROCESSED.calls[:index], *instead, *PROCESSED.calls[index + 1 :]]


def counted(batch, **numbers):
    """A run whose progress has other counts of a batch."""
    handled = dict(PROCESSED.shown.handled)
    handled[batch] = handled[batch] | numbers
    return {"shown": replace(PROCESSED.shown, handled=handled)}


WRONG_PROCESSED = {
    "a record that is done in two stages": (
        "nothing twice", {"rows": [*PROCESSED.rows, Row(2, RETRY, 0, 0, "later")]},
    ),
    "a record that nobody handled": ("source = done + retry + dead", {"log": PROCESSED.log | {(RETRY, 0, 1): "again"}}),
    "a record that is done and handed on": ("source = done + retry + dead", {
        "log": PROCESSED.log | {(RETRY, 0, 1): "done"},
        "rows": [*PROCESSED.rows, Row(1, RETRY, 0, 1, "done")],
        "calls": [*PROCESSED.calls, call(1, RETRY, 1, "done", 140, "done", 30)]}),
    "a dead letter too much": ("source = done + retry + dead", {"dead": [*PROCESSED.dead, Dead("never", 0)]}),
    "a dead letter of another stage": ("source = done + retry + dead", {"dead": [Dead("never", 1)]}),
    "a record that is done and dead": ("nothing twice", {"dead": [*PROCESSED.dead, Dead("done", 0)]}),
    "a record that is done twice": ("nothing twice", {"rows": [*PROCESSED.rows, PROCESSED.rows[0]]}),
    "a record before the end of its delay": ("never early", {
        "calls": calls_but(8, call(2, RETRY_LATER, 0, "later", 449, "done", 150))}),
    "a record too early after its failure": ("never early", {
        "calls": calls_but(8, call(2, RETRY_LATER, 0, "later", 429, "done", 120))}),
    "counts that do not add up": ("calls recounted", counted(0, dead=0)),
    "a record that is not counted": ("calls recounted", counted(0, records=3, retried=0)),
    "a failure that is counted as done": ("calls recounted", counted(0, done=3, retried=0)),
    "a call that is not counted": ("calls recounted", counted(1, triesAgain=0)),
}  # fmt: skip


def other(name, index, made):
    """A run with another element in one of its sequences."""
    sequence = list(getattr(GOOD, name))
    sequence[index] = made
    return {name: sequence}


WRONG = {
    "a record is not in the sink": ("nothing missing", {"rows": [*GOOD.rows[:3], *GOOD.rows[4:]]}),
    "a record that was acknowledged and is in no log any more": (
        "nothing missing", {"rows": GOOD.rows[1:], "log": {}},
    ),
    "a record beyond the commit": (
        "read to the end", {"rows": GOOD.rows[:19], "committed": {TP: 19}},
    ),
    "a row twice in one batch": ("nothing twice", {"rows": [*GOOD.rows, GOOD.rows[5]]}),
    "a row in two batches": ("nothing twice", {"rows": [*GOOD.rows, replace(GOOD.rows[5], batch=1)]}),
    "a record is not in the sink, and another has its place": (
        "nothing missing", {"acknowledged": [Acknowledged("of before", "t", 0, 5), *GOOD.acknowledged]},
    ),
    "a row of another place than its record had in a log that is gone": (
        "nothing else", other("rows", 3, replace(GOOD.rows[3], offset=30)) | {"log": {}},
    ),
    "a row of another place": ("nothing else", other("rows", 3, replace(GOOD.rows[3], value=value(4)))),
    "an aborted row": ("nothing aborted", {"aborted": frozenset([value(7)])}),
    "a batch that begins too late": ("batches follow", {"events": [
        *GOOD.events[:3], planned(2, 1, 1, 11, 12), *GOOD.events[3:]]}),
    "a task without a record": ("tasks cover", planned_as(plan(0, ["t", 0, 0, 4], ["t", 0, 5, 10]))),
    "a record in two tasks": ("tasks cover", planned_as(plan(0, ["t", 0, 0, 5], ["t", 0, 4, 10]))),
    "a record in no task of the first of two plans": (
        "tasks cover",
        planned_as(plan(0, ["t", 0, 0, 9]), plan(0, ["t", 0, 0, 10])),
    ),
    "tasks of a batch that nobody planned": (
        "tasks cover",
        planned_as(plan(0, ["t", 0, 0, 10]), plan(2, ["t", 0, 20, 21])),
    ),
    "tasks beyond the checkpoint": (
        "tasks cover",
        {
            "plans": [plan(0, ["t", 0, 0, 12]), plan(1, ["t", 0, 10, 20])],
            "events": [*GOOD.events[:2], planned(1, 1, 0, 0, 12), *GOOD.events[4:]],
        },
    ),
    "rows of a batch that had no tasks": ("tasks cover", {"plans": [plan(0, ["t", 0, 0, 10])]}),
    "a commit below the one before": ("never backward", {"stored": [*GOOD.stored, commit(70, 10, 2, 0)]}),
    "an offset that is removed": ("never backward", {"stored": [*GOOD.stored, Stored(70, tp=TP)]}),
    "a commit before its batch is done": ("never ahead", other("stored", 1, commit(5, 10, 1, 0))),
    "a commit in the middle of a batch": ("never ahead", other("stored", 3, commit(60, 15, 2, 1))),
    "a commit of an older generation": ("current generation", other("stored", 3, commit(60, 20, 1, 1))),
    "two owners": ("one owner", other("stored", 2, generation(31, 2, a=[TP], b=[TP]))),
    "a member that was assigned other partitions than are stored": (
        "assigned as stored", other("stored", 2, generation(31, 2, a=[("t", 1)]))),
    "a member that was assigned partitions in a generation that is not stored for it": (
        "assigned as stored", other("stored", 2, generation(31, 2, b=[TP]))),
    "a commit that was not planned": ("verify", other("events", 6, committed(60, 2, 1, 19))),
    "a checkpoint behind the log": ("agreed at rest", {"ended": {TP: 19}}),
    "a group behind the log": ("agreed at rest", {"committed": {TP: 19}, "lag": 1}),
    "a lag that is wrong": ("lag recounted", {"lag": 1}),
    "a position that is wrong": ("numbers recounted", shown(positions={"t": {"0": 19}})),
    "an end of a log that is wrong": ("numbers recounted", shown(LATEST | {"t": {"0": 21}})),
    "committed offsets that are wrong": ("numbers recounted", shown(committed={"t": {"0": 19}})),
    "a partition that is not shown": ("numbers recounted", shown({"t": {}}, positions={"t": {}})),
    "a number of partitions that is wrong": ("numbers recounted", shown(assignedPartitions=2)),
    "a generation that is wrong": ("numbers recounted", shown(generation=1)),
    "a member that no generation has": ("numbers recounted", shown(member="b-id")),
    "a highest lag that is wrong": ("numbers recounted", shown(maxOffsetsBehindLatest=1)),
    "a lowest lag that is wrong": ("numbers recounted", shown(minOffsetsBehindLatest=1)),
    "an average lag that is wrong": ("numbers recounted", shown(avgOffsetsBehindLatest=0.5)),
    "an age without a record": ("numbers recounted", shown(behindSinceMs={"t": {"0": 50}})),
    "brokers that are not away": ("numbers recounted", shown(brokersAway={"sinceMs": 50})),
    "a commit that the group does not have": ("numbers recounted", shown(commits=3)),
    "input rows that are wrong": ("batches recounted", {"shown": Shown((), 0, {0: ({TP: 10}, 9)})}),
    "an end of a batch that is wrong": ("batches recounted", {"shown": Shown((), 0, {0: ({TP: 11}, 10)})}),
    "too late": ("progress in time", {"faults": [Fault("kill", 0, 1000, 1500, 27_000, 25.0)]}),
    "never again": ("progress in time", {"faults": [Fault("kill", 0, 1000, None, None, 25.0)]}),
    "an end of its own": ("ended as wanted", {"endings": [Ending("query-1", "exit code 1", False)]}),
    "a row of an output that waits for no transaction, and is not there": (
        "never less", {"outputs": [Output("q", MAP, OF_A_TOPIC, EACH_ONCE, Counter())]}),
    "a batch that was mended, and all of it is there": (
        "lost in part",
        {"outputs": [Output("q", MAP, OF_A_TOPIC, EACH_ONCE, batches=GOOD.batches, mended={1: ABORT})]}),
    "a transaction that is old": ("not open for longer", {"too_old": {"q-0": 99.0}}),
    "a file": ("nothing left", {"left": ["a temporary file"]}),
    "a problem": ("run", {"problems": ["not at rest"]}),
}  # fmt: skip


def invariants(run):
    return {finding.invariant for finding in judged(run)}


def test_a_run_as_it_should_be_breaks_nothing():
    assert judged(GOOD) == []


@pytest.mark.parametrize("name", WRONG)
def test_one_wrong_thing_is_a_finding(name):
    invariant, changed = WRONG[name]
    assert invariant in invariants(a_run(**changed))


def test_a_run_of_a_record_processor_as_it_should_be_breaks_nothing():
    assert judged(PROCESSED) == []


@pytest.mark.parametrize("name", WRONG_PROCESSED)
def test_one_wrong_thing_of_a_record_processor_is_a_finding(name):
    invariant, changed = WRONG_PROCESSED[name]
    assert invariant in invariants(a_processor_run(**changed))


def test_every_invariant_has_been_shown_to_fail():
    broken = {finding.invariant for _, changed in WRONG.values() for finding in judged(a_run(**changed))}
    broken |= {
        found.invariant for _, changed in WRONG_PROCESSED.values() for found in judged(a_processor_run(**changed))
    }
    named = {invariant for invariant, _ in (*WRONG.values(), *WRONG_PROCESSED.values())}
    documented = (ROOT / "docs" / "reliability.md").read_text().partition("## What has to hold")[2]
    assert broken == named == set(re.findall(r"^\| (.*?) \| [A-Z1`]", documented, re.MULTILINE))


def test_a_process_that_lost_the_race_for_a_batch_has_planned_other_ranges_and_no_tasks():
    late = planned(55, 3, 1, 10, 18, process="query0-2")
    assert "tasks cover" not in invariants(a_run(events=[*GOOD.events[:-1], late, GOOD.events[-1]]))


def test_a_batch_that_is_run_again_is_planned_by_each_process():
    again = planned(55, 3, 1, 10, 20, process="query0-2", replay=True)
    run = a_run(
        events=[*GOOD.events[:-1], again, GOOD.events[-1]],
        plans=[*GOOD.plans, plan(1, ["t", 0, 10, 15], ["t", 0, 15, 20], process="query0-2")],
    )
    assert "tasks cover" not in invariants(run)
    wrong = plan(1, ["t", 0, 10, 15], process="query0-2")
    assert "tasks cover" in invariants(replace(run, plans=[*GOOD.plans, wrong]))


def test_a_record_that_its_producer_sent_twice_is_read_twice_and_no_more():
    sent_twice = {"log": dict(GOOD.log) | {("t", 0, 7): value(3)}, "acknowledged": GOOD.acknowledged[:7]}
    rows = [row if row.offset != 7 else replace(row, value=value(3)) for row in GOOD.rows]
    assert invariants(a_run(rows=rows, **sent_twice)) == set()
    from_one_place = [row if row.offset != 7 else replace(row, value=value(3), offset=3) for row in GOOD.rows]
    assert invariants(a_run(rows=from_one_place, **sent_twice)) == {"nothing twice"}
    assert invariants(a_run(rows=rows, delivered=[value(3)], **sent_twice)) == {"nothing twice"}


def test_a_sink_that_only_appends_may_have_the_rows_of_an_interrupted_batch_again_and_no_others():
    twice = [replace(row) for row in GOOD.rows if row.batch == 1]
    run = a_run(sink="append", rows=[*GOOD.rows, *twice], shown=Shown())
    assert invariants(run) == {"nothing twice"}
    assert invariants(replace(run, interrupted=frozenset([1]))) == set()
    assert invariants(replace(run, interrupted=frozenset([0]))) == {"nothing twice"}


def in_two_queries(**changed):
    """The last batch of the first query was interrupted, and a second query has it again."""
    first = [*GOOD.batches[:1], replace(GOOD.batches[1], reader="a")]
    second = Batch(0, {TP: 10}, {TP: 20}, 70, 3, 0, "b", query=1)
    more = {
        "rows": [*GOOD.rows, *(replace(row, batch=0, query=1) for row in GOOD.rows[10:])],
        "batches": [*first, second],
        "events": GOOD.events[:-1],
        "stored": [*GOOD.stored[:-1], generation(60, 3), Stored(80, tp=TP, offset=20, note=NOTE_OF_B)],
    }
    return a_run(**(more | changed))


NOTE_OF_B = {"reader": "b", "generation": 3, "batch": 0}


def test_another_member_may_have_the_rows_of_a_batch_again_that_was_killed_before_its_commit():
    run = in_two_queries()
    assert "nothing twice" not in invariants(run)
    next_one = planned(61, 2, 2, 20, 20)
    went_on = [replace(e, where=f"file:{n}") for n, e in enumerate([*run.events, next_one])]
    assert "nothing twice" in invariants(replace(run, events=went_on))
    committed_too = [*run.stored[:3], commit(60, 20, 2, 1), *run.stored[3:]]
    assert "nothing twice" in invariants(replace(run, stored=committed_too))
    in_its_own_sink = [*run.rows, replace(GOOD.rows[10], batch=2)]
    assert "nothing twice" in invariants(replace(run, rows=in_its_own_sink))
    assert "nothing twice" in invariants(replace(run, delivered=[value(12)]))
    assert "nothing twice" not in invariants(replace(run, rows=GOOD.rows, delivered=[value(12)]))


def test_a_query_may_go_on_from_what_another_member_has_committed_in_the_middle_of_a_batch():
    """A batch up to 20 has no commit, another program commits 15, and the query's next process reads from there."""

    def findings(by=None, process="query0-2", **changed):
        of_query = commit(70, 15, 4, 1), commit(91, 25, 4, 2)  # it adopts the offset, and commits its batch
        events = [
            *GOOD.events[:-1],
            event(70, "assigned", 4, process=process, partitions=frozenset([TP])),
            event(70, "moved", 4, process=process, moves={TP: Move(20, 15)}),
            planned(71, 4, 2, 15, 25, process=process),
        ]
        run = {
            "rows": [*GOOD.rows, *(replace(row, batch=2) for row in GOOD.rows[15:])],
            "batches": [*GOOD.batches, Batch(2, {TP: 15}, {TP: 25}, 90, 4, 2, "a")],
            "events": events,
            "stored": [
                *GOOD.stored[:-1],
                Stored(65, tp=TP, offset=15, note=by),
                generation(69, 4),
                *of_query,
            ],
        }
        return invariants(a_run(**(run | changed)))

    assert "nothing twice" not in findings()
    assert "nothing twice" not in findings(by=NOTE_OF_B)
    assert "nothing twice" in findings(by={"reader": "a", "generation": 2, "batch": 1})
    assert "nothing twice" in findings(process="query0-1")  # it was not interrupted
    assert "nothing twice" in findings(stored=GOOD.stored)
    assert "nothing twice" in findings(rows=[*GOOD.rows, replace(GOOD.rows[15], batch=1)])


def test_a_member_that_was_expelled_may_have_had_its_last_batch_for_nothing():
    run = in_two_queries()
    lost, next_one = event(60, "lost", 2, partitions=frozenset([TP])), planned(61, 3, 2, 20, 20)
    events = [replace(e, where=f"file:{n}") for n, e in enumerate([*run.events, lost, next_one])]
    assert "nothing twice" not in invariants(replace(run, events=events))


def test_records_that_an_operator_took_away_or_gave_again_are_no_findings():
    read = Shown([LATEST], 0, {0: ({TP: 10}, 9)})
    assert invariants(a_run(rows=GOOD.rows[1:], removed=frozenset([value(0)]), shown=read)) == set()
    again = [*GOOD.rows, replace(GOOD.rows[0], batch=1)]
    read = Shown([LATEST], 0, {1: ({TP: 20}, 11)})
    assert invariants(a_run(rows=again, again=frozenset([value(0)]), shown=read)) == set()


def test_a_commit_backward_to_where_a_member_was_moved_is_no_finding():
    moved = event(69, "moved", 2, moves={TP: Move(20, 10)})
    stored = [*GOOD.stored, commit(70, 10, 2, 1)]
    assert "never backward" in invariants(a_run(stored=stored))
    assert not {"never backward", "never ahead"} & invariants(a_run(stored=stored, events=[*GOOD.events, moved]))


def test_a_note_on_a_neighbours_offset_is_no_commit_ahead():
    stored = [*GOOD.stored[:3], Stored(40, tp=TP, offset=15), commit(41, 15, 2, 0), GOOD.stored[3]]
    assert "never ahead" not in invariants(a_run(stored=stored))
    assert "never ahead" in invariants(a_run(stored=[*stored[:3], *stored[4:]]))


def test_sparks_own_source_is_not_asked_for_a_group():
    run = a_run(source="kafka", stored=(), events=(), committed={}, lag=None)
    assert invariants(run) == set()
    assert invariants(replace(run, rows=GOOD.rows[1:])) == {"nothing missing"}


def test_a_record_processor_may_repeat_records_of_interrupted_batches_and_no_others():
    again = [*PROCESSED.calls, call(0, "t", 0, "done", 50, "done"), call(0, "t", 3, "never", 50, "fatal")]
    run = a_processor_run(
        calls=again, rows=[c.row for c in again if c.outcome == "done"], dead=[*PROCESSED.dead, Dead("never", 0)]
    )
    assert invariants(run) == {"nothing twice", "source = done + retry + dead", "calls recounted"}
    assert invariants(replace(run, interrupted=frozenset([0]))) == set()
    assert "nothing twice" in invariants(replace(run, interrupted=frozenset([1])))


def test_a_record_processor_that_writes_in_transactions_may_repeat_calls_of_interrupted_batches_and_no_records():
    called_again = [*PROCESSED.calls, call(0, "t", 0, "done", 50, "done"), call(0, "t", 3, "never", 50, "fatal")]
    run = a_processor_run(sink="processor-once", calls=called_again, interrupted=frozenset([0]))
    assert invariants(run) == set()
    written_again = replace(run, rows=[*run.rows, run.rows[0]])
    assert invariants(written_again) == {"nothing twice", "source = done + retry + dead"}
    assert invariants(replace(run, dead=[*run.dead, *run.dead])) == {"nothing twice", "source = done + retry + dead"}
    retried_again = run.log | {(RETRY, 0, 1): "later"}
    assert invariants(replace(run, log=retried_again)) == {"source = done + retry + dead"}


def test_numbers_are_recounted_only_where_a_query_has_shown_them_at_rest():
    assert invariants(a_run(shown=Shown())) == set()


def test_a_partition_that_was_added_and_has_no_record_yet_is_in_no_batch_and_its_position_is_where_it_begins():
    added = TopicPartition("t", 1)

    def run_with(position):
        of_both = {"t": {"0": 20, "1": 0}}
        numbers = {"positions": {"t": {"0": 20, "1": position}}, "generation": 3, "assignedPartitions": 2}
        stored = [*GOOD.stored, generation(70, 3, **{"a-id": [TP, added]})]
        return a_run(stored=stored, ends={TP: 20, added: 0}, **shown(LATEST | of_both, **numbers))

    assert "numbers recounted" not in invariants(run_with(0))
    assert "numbers recounted" in invariants(run_with(1))


def test_a_repeated_commit_is_stored_more_than_once():
    assert invariants(shown_commits(1)) == set()


def shown_commits(count):
    return a_run(**shown(commits=count))


def test_rows_of_an_interrupted_batch_may_be_more_than_its_input_rows_in_a_sink_that_only_appends():
    run = a_run(sink="append", rows=[*GOOD.rows, *(row for row in GOOD.rows if row.batch == 1)])
    assert "batches recounted" in invariants(run)
    assert "batches recounted" not in invariants(replace(run, interrupted=frozenset([1])))


def test_an_interrupted_batch_that_the_file_sink_already_has_shows_no_rows():
    run = replace(GOOD, shown=Shown((), 0, {0: ({TP: 10}, 0)}))
    assert "batches recounted" in invariants(run)
    assert "batches recounted" not in invariants(replace(run, interrupted=frozenset([0])))
    assert "batches recounted" in invariants(replace(run, sink="overwrite", interrupted=frozenset([0])))


def test_generations_of_a_group_that_was_deleted_begin_again():
    two, one = planned(100, 2, 2, 20, 25), planned(101, 1, 3, 25, 30)
    elsewhere = planned(102, 2, 4, 30, 35)
    assert not list(batches_follow(a_run(events=[two, one, elsewhere])))
    assert list(batches_follow(a_run(events=[two, elsewhere])))
