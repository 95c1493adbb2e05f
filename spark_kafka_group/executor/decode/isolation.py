"""Aborted transactions of a fetch response, whose records both twins hide.

The rules are those of Kafka's ``CompletedFetch``: a response names the aborted transactions that overlap its records,
each by its producer and its first offset. From there on the producer's transactional batches are hidden, up to its next
ABORT marker. Nothing is remembered from response to response, so a range may begin anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable

ABORT = 0
"""Type of the control record that ends an aborted transaction; COMMIT is 1, others are not about transactions."""

MARKER_KEY_SIZE = 4
"""Fewest bytes of a control record's key: its version and its type, 16 bits each."""


class AbortedTransactions:
    """The aborted transactions of one fetch response, while its batches are read in the order of the log.

    Parameters
    ----------
    transactions
        Producer id and first offset of each, in any order.
    """

    __slots__ = ("_aborting", "_ahead")

    def __init__(self, transactions: Iterable[tuple[int, int]]) -> None:
        self._ahead = sorted(transactions, key=lambda transaction: -transaction[1])  # the next one is the last
        self._aborting: set[int] = set()

    def reached(self, producer_id: int, last_offset: int) -> bool:
        """Go on to a batch that has a producer: whether that producer is within an aborted transaction there."""
        ahead = self._ahead
        while ahead and ahead[-1][1] <= last_offset:
            self._aborting.add(ahead.pop()[0])
        return producer_id in self._aborting

    def ended(self, producer_id: int) -> None:
        """Note an ABORT marker: the producer's next records belong to another transaction."""
        self._aborting.discard(producer_id)
