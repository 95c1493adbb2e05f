"""The table itself: complete, in Kafka's words, and with advice wherever a query stops."""

import string

import kafka.errors as kafka_errors
import pytest

from spark_kafka_group.wire.reactions import (
    ADVICE,
    OF_A_MEMBER,
    OTHERS,
    REACTIONS,
    RETRIED,
    Facts,
    Reaction,
    Request,
    advice,
    name_of,
    reaction_to,
)

KAFKAS = {name_of(error): error for error in kafka_errors.kafka_errors.values()}


def test_every_error_has_kafkas_name_and_a_reaction_to_every_request():
    assert set(REACTIONS) <= set(KAFKAS)
    assert all(set(reactions) == set(OF_A_MEMBER) for reactions in REACTIONS.values())


def test_other_requests_list_errors_by_kafkas_name_and_only_where_its_class_is_not_enough():
    assert not set(OTHERS) & set(OF_A_MEMBER)
    for request, reactions in OTHERS.items():
        assert set(reactions) <= set(KAFKAS)
        assert not {Reaction.NOT_SENT, Reaction.FATAL} & set(reactions.values()), request


@pytest.mark.parametrize("request_", Request, ids=lambda request: request.name)
def test_an_error_that_no_table_lists_does_what_its_class_says(request_):
    listed = OTHERS.get(request_, {}) if request_ in OTHERS else {e for e, row in REACTIONS.items() if request_ in row}
    for name, error in KAFKAS.items():
        if name not in listed:
            retriable = issubclass(error, kafka_errors.RetriableError)
            assert (reaction_to(error("why"), request_) in RETRIED) == retriable, name
    assert reaction_to(kafka_errors.KafkaConnectionError("lost"), request_) in RETRIED  # that no broker has answered
    assert reaction_to(None, request_) is Reaction.FATAL


def test_an_error_of_a_log_that_may_pass_has_the_leader_looked_up():
    assert reaction_to(kafka_errors.KafkaStorageError, Request.FETCH) is Reaction.FIND_LEADER
    assert reaction_to(kafka_errors.NotLeaderForPartitionError, Request.FETCH) is Reaction.LEADER_CHANGED
    assert reaction_to(kafka_errors.CorruptRecordError, Request.FETCH) is Reaction.DAMAGED
    assert reaction_to(kafka_errors.UnknownError, Request.FETCH) is Reaction.UNCLEAR
    assert reaction_to(kafka_errors.TopicAuthorizationFailedError, Request.FETCH) is Reaction.FATAL


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
    facts = Facts("billing", "billing-1", 1000, ("range", "sticky"), (6000, 20000), transactional_id="invoices")
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
        "transactional_id": "invoices",
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
