"""A follower's copy of a log that is damaged, read while the leader's is whole: every record comes once, both twins."""

from __future__ import annotations

from typing import Any

import pytest
from served import TP, Connection, Served, read_all
from support.damage import DAMAGES, batches
from test_left_out import SMALL, TWINS, indexed, written

from spark_kafka_group.executor.reading import fetcher
from spark_kafka_group.options import Options
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire import NearestReplicas

LEADER, FOLLOWER = 1, 2
COUNT = 18


class Replicated(Served):
    """A leader's log and a follower's, which the leader has named."""

    def __init__(self, log: bytes, copy: bytes) -> None:
        super().__init__(log, COUNT, indexed(log))
        self.copy = Served(copy, COUNT, indexed(log))

    def connect(self, options: Options) -> Connection:
        return _Connections(self, options)


class _Connections(Connection):
    def __init__(self, served: Replicated, options: Options) -> None:
        super().__init__(served, options)
        self._of_follower = Connection(served.copy, options)
        self.nearest = NearestReplicas("rack", 300.0)  # type: ignore[assignment]
        self.nearest.named(TP, FOLLOWER)

    def leaders(self, tps: Any, refresh: bool, topic_ids: Any = None) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, LEADER)

    def connection(self, node_id: int) -> Connection:
        return self if node_id == LEADER else self._of_follower

    def drop_busy(self) -> None:
        super().drop_busy()
        self._of_follower.drop_busy()


@pytest.fixture(autouse=True, scope="module")
def impatient() -> Any:
    """Tasks look for damage at once where a broker is silent."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetcher, "SILENT_AFTER_S", 0.0)
        yield


@pytest.mark.parametrize("decoder", TWINS)
@pytest.mark.parametrize("policy", ["fail", "skip"])
@pytest.mark.parametrize("more", [{}, SMALL], ids=["one response", "a batch a response"])
@pytest.mark.parametrize("number", [0, 2, 5], ids=["first", "in between", "last"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_each_record_comes_once_although_the_follower_s_copy_is_damaged(
    damage: str, number: int, more: dict[str, int], policy: str, decoder: str
) -> None:
    log = written()
    copy = bytearray(log)
    DAMAGES[damage](copy, batches(log)[number])
    served = Replicated(log, bytes(copy))
    found = read_all(served, decoder, onCorruptRecord=policy, **more)
    assert (found.error, found.left_out) == (None, [])
    assert found.rows == list(range(COUNT))
    assert served.copy.asked  # the follower was read
