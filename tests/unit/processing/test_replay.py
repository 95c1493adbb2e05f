"""Which dead letters go back where their headers say."""

import pytest

from spark_kafka_group.processing.replay import FILTERED, FOREIGN, INTERNAL, NOWHERE, RAW, UNKNOWN, WANTED, Wanted
from spark_kafka_group.values.error_headers import SOURCE, Origin


@pytest.mark.parametrize(
    ("asked_for", "found_in", "origin", "outcome"),
    [
        (None, "orders-dlt", "orders", WANTED),
        (None, "orders-dlt", "orders-retry-60000", WANTED),
        (None, "orders-dlt", "payments", FOREIGN),
        (None, "orders-dlt", "orders-dlt", FOREIGN),
        (None, "failures", "orders", FOREIGN),
        (None, "__consumer_offsets-dlt", "__consumer_offsets", INTERNAL),
        ("orders", "failures", "orders", WANTED),
        ("payments", "orders-dlt", "payments", WANTED),
        ("payments", "orders-dlt", "orders", FILTERED),
        ("__consumer_offsets", "orders-dlt", "__consumer_offsets", INTERNAL),
        ("__transaction_state", "orders-dlt", "__transaction_state", INTERNAL),
        ("__mine", "orders-dlt", "__mine", INTERNAL),
    ],
)
def test_a_letter_goes_back_to_the_topic_whose_letters_are_there_or_that_was_asked_for(
    asked_for, found_in, origin, outcome
):
    assert Wanted(asked_for).outcome(found_in, Origin(origin, 0, 0, 0, 0), "shop.Declined", None) == outcome


def test_what_is_no_letter_or_is_not_asked_for_stays():
    orders = Origin("orders", 0, 0, 0, 0)
    assert Wanted().outcome("orders-dlt", NOWHERE, None, None) == UNKNOWN
    assert Wanted().outcome("orders-dlt", orders, None, SOURCE) == RAW
    assert Wanted(None, "Declined").outcome("orders-dlt", orders, "shop.Declined", None) == WANTED
    assert Wanted(None, "Declined").outcome("orders-dlt", orders, "shop.Refused", None) == FILTERED
    assert Wanted(None, "Declined").outcome("orders-dlt", orders, None, None) == FILTERED
