"""The table itself: complete, in Kafka's words, and with advice wherever a query stops."""

import string
from pathlib import Path

import kafka.errors as kafka_errors
import pytest

from spark_kafka_group.wire.reactions import ADVICE, REACTIONS, RETRIED, Facts, Reaction, Request, advice, as_markdown

KAFKAS = {error.message: error for error in kafka_errors.kafka_errors.values()}


def test_every_error_has_kafkas_name_and_a_reaction_to_every_request():
    assert set(REACTIONS) <= set(KAFKAS)
    assert all(set(reactions) == set(Request) for reactions in REACTIONS.values())


def test_every_error_is_answered_to_some_request():
    assert all(set(reactions.values()) != {Reaction.NOT_SENT} for reactions in REACTIONS.values())


@pytest.mark.parametrize("error", REACTIONS)
def test_what_stops_a_query_at_once_or_in_the_end_says_what_to_change(error):
    stopping = {Reaction.FATAL, Reaction.FENCED} | RETRIED
    assert (error in ADVICE) == bool(stopping & set(REACTIONS[error].values()))


@pytest.mark.parametrize("error", REACTIONS)
def test_kafka_python_asks_again_where_the_table_says_so(error):
    retriable = issubclass(KAFKAS[error], kafka_errors.RetriableError)
    for request, reaction in REACTIONS[error].items():
        if reaction is not Reaction.NOT_SENT:
            assert (reaction in RETRIED) == retriable, request


@pytest.mark.parametrize("error", ADVICE)
def test_advice_speaks_of_the_querys_own_settings(error):
    facts = Facts("billing", "billing-1", 1000, ("range", "sticky"), session_bounds=(6000, 20000))
    text = advice(error, Request.COMMIT, facts, ["orders", "bills"])
    named = {field for _, field, _, _ in string.Formatter().parse(ADVICE[error]) if field}
    shown = {
        "group_id": "billing",
        "instance_id": "billing-1",
        "session_timeout_ms": "(1000)",
        "session_bounds": "choose one between 6000 and 20000",
        "strategies": "(range, sticky)",
        "topics": "bills, orders",
        "operation": "Read",
    }
    assert all(shown[field] in text for field in named)


def test_without_the_brokers_bounds_the_settings_that_hold_them_are_named():
    text = advice("INVALID_SESSION_TIMEOUT", Request.JOIN, Facts(session_timeout_ms=1000))
    assert text.endswith("group.min.session.timeout.ms and group.max.session.timeout.ms: choose one between them")


def test_reading_offsets_needs_less_than_committing_them():
    facts = Facts("billing")
    assert "Describe (or Read" in advice("GROUP_AUTHORIZATION_FAILED", Request.OFFSET_FETCH, facts)
    assert "operation Read on Group billing" in advice("GROUP_AUTHORIZATION_FAILED", Request.COMMIT, facts)
    assert "Describe (or Read" in advice("TOPIC_AUTHORIZATION_FAILED", None, facts, ["orders"])


def test_an_error_without_advice_has_none():
    assert advice("KAFKA_STORAGE_ERROR", None, Facts()) is None


def test_the_documentations_table_has_a_row_an_error_and_a_legend_of_all_reactions():
    lines = as_markdown().splitlines()
    assert lines[0] == "| error | FindCoordinator | JoinGroup | SyncGroup | Heartbeat | OffsetCommit | OffsetFetch |"
    rows = [line for line in lines if line.startswith("| `")]
    assert len(rows) == len(REACTIONS)
    assert all(line.count("|") == 8 for line in rows)
    assert "| `UNKNOWN_MEMBER_ID` |  | join as new | join as new | join as new | join as new |  |" in rows
    assert sum(line.startswith("- **") for line in lines) == len(Reaction) - 1


def test_the_readme_has_the_table_as_the_code_has_it():
    assert as_markdown().strip() in (Path(__file__).parents[2] / "README.md").read_text()
