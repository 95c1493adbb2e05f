"""The judge: what must hold of every run, whatever happened in it.

Each invariant is stated once, as a function from ``faults.evidence`` to findings:

* ``rows``: no row is missing, twice or of no record, in a sink, in output topics, in all outputs of a group.
* ``group``: assignments, plans and commits. Whatever events alone can show, ``verify`` judges.
* ``numbers``: what a query shows of itself, and what becomes of a RecordProcessor's records.

Nothing is found where a run has left no evidence.
"""

from __future__ import annotations

from collections.abc import Iterator

from faults.evidence import GROUPKAFKA, Finding, Observed
from faults.judge import group, numbers, rows


def agreed_at_rest(run: Observed) -> Iterator[Finding]:
    """At rest the checkpoint, if there is one, and the group are where the logs end."""
    committed = run.committed if run.source == GROUPKAFKA else None
    whole = ("the query", run.ends, committed, run.ended)
    outputs = ((output.name, output.ends, output.committed, output.ended) for output in run.outputs)
    for name, ends, of_group, of_checkpoint in (whole, *outputs):
        for who, at in (("group", of_group), ("checkpoint", of_checkpoint)):
            behind = {} if at is None else {tp: end for tp, end in ends.items() if at.get(tp, 0) != end}
            for tp, end in behind.items():
                text = f"{tp}: the {who} of {name} is at {(at or {}).get(tp)}, the log ends at {end}"
                yield Finding("agreed at rest", text)


def progress_in_time(run: Observed) -> Iterator[Finding]:
    """1,000 records are done within the bound after each fault was over."""
    for fault in run.faults:
        took_s = None if fault.progressed_ms is None else (fault.progressed_ms - fault.healed_ms) / 1000
        if took_s is None or took_s > fault.bound_s:
            took = "were never done" if took_s is None else f"took {took_s:.1f} s"
            yield Finding(
                "progress in time", f"after {fault.what}: 1,000 records {took}, with a bound of {fault.bound_s:.0f} s"
            )


def ended_as_wanted(run: Observed) -> Iterator[Finding]:
    """No process of a query ended by itself."""
    for ending in run.endings:
        if not ending.wanted:
            yield Finding("ended as wanted", f"{ending.process} ended by itself: {ending.how}")


def not_open_for_longer(run: Observed) -> Iterator[Finding]:
    """No transaction was open for longer than its timeout and the broker's check."""
    for transaction, age_s in run.too_old.items():
        yield Finding("not open for longer", f"{transaction} was open for {age_s:.0f} s")


def nothing_left(run: Observed) -> Iterator[Finding]:
    """Nothing is left behind."""
    for thing in run.left:
        yield Finding("nothing left", thing)


def no_problems(run: Observed) -> Iterator[Finding]:
    """The run itself went as it should."""
    for problem in run.problems:
        yield Finding("run", problem)


OF_ANY_SOURCE = (
    rows.of_all_rows, rows.nothing_aborted, agreed_at_rest, progress_in_time, ended_as_wanted, nothing_left,
    no_problems,
)  # fmt: skip
OF_A_MEMBER = (
    rows.lost_in_part, rows.never_less, not_open_for_longer,
    group.batches_follow, group.tasks_cover, group.commits_never_backward, group.commits_never_ahead,
    group.only_current_generation_commits, group.one_owner, group.assigned_as_stored, group.verified,
    numbers.lag_recounted, numbers.numbers_recounted, numbers.batches_recounted, numbers.calls_recounted,
    numbers.never_early, numbers.source_is_done_retried_and_dead,
)  # fmt: skip


def judged(run: Observed) -> list[Finding]:
    """All findings."""
    checks = OF_ANY_SOURCE + (OF_A_MEMBER if run.source == GROUPKAFKA else ())
    return [finding for check in checks for finding in check(run)]
