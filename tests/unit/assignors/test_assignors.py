"""Strategies by the names that the option takes, and classes of the user's own."""

import pytest

from spark_kafka_group.assignors import BUILT_IN, resolve
from spark_kafka_group.assignors.built_in import BY_JAVA_CLASS
from spark_kafka_group.errors import OptionError


class Mine:
    name = "mine"

    def assign(self, members, partitions):
        return {}


class Nameless:
    def assign(self, members, partitions):
        return {}


class Impostor(Mine):
    name = "sticky"


class Idle:
    name = "idle"


class Demanding(Mine):
    def __init__(self, needed):
        pass


def test_built_in_names_are_kafkas():
    assert list(BUILT_IN) == ["range", "roundrobin", "sticky", "cooperative-sticky"]
    assert {name: strategy.name for name, strategy in BUILT_IN.items()} == {name: name for name in BUILT_IN}


def test_strategies_come_in_the_order_of_their_names():
    assert [strategy.name for strategy in resolve(["sticky", "range"])] == ["sticky", "range"]


@pytest.mark.parametrize("java", sorted(BY_JAVA_CLASS))
def test_javas_class_names_mean_ours(java):
    assert resolve([java]) == [BUILT_IN[BY_JAVA_CLASS[java].name]]


def test_a_class_of_the_users_own():
    (strategy,) = resolve([f"{__name__}:Mine"])
    assert isinstance(strategy, Mine)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("fair", r"\(fair\) is not known: it must be range, roundrobin, sticky, cooperative-sticky, one of Java's"),
        ("Range", r"\(Range\) is not known"),
        ("org.apache.kafka.clients.consumer.Other", r"is not known"),
        ("no_such_module:Mine", r"no_such_module:Mine\) could not be imported: ModuleNotFoundError"),
        (f"{__name__}:Other", r"Other\) could not be imported"),
        (f"{__name__}:Idle", r"Idle\) must be a class with assign"),
        (f"{__name__}:Demanding", r"Demanding\) could not be made: TypeError"),
        (f"{__name__}:Nameless", r"Nameless\) has no name: set attribute name"),
        (f"{__name__}:Impostor", r"Impostor\) is called sticky, as one of Kafka's own strategies"),
    ],
)
def test_a_class_that_cannot_be_a_strategy_is_refused_with_the_remedy(named, message):
    with pytest.raises(OptionError, match=r"^kafka\.partition\.assignment\.strategy .*" + message):
        resolve([named])


def test_one_strategy_under_two_names_is_refused():
    with pytest.raises(OptionError, match="names strategy range twice"):
        resolve(["range", "org.apache.kafka.clients.consumer.RangeAssignor"])


def test_no_strategy_at_all_is_refused():
    with pytest.raises(OptionError, match="names no strategy"):
        resolve([])
