"""Looks all the time at open transactions, and keeps the age that each one has reached."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection

from spark_kafka_group.errors import GroupKafkaError
from spark_kafka_group.options.connection import ClientOptions
from spark_kafka_group.wire.transactions.transaction_client import TransactionClient

EVERY_S = 3.0
LIMIT_MS = 5_000


class Watch:
    """A context manager: a thread that asks for the transactions of some prefixes.

    Attributes
    ----------
    too_old
        Transactions that were open for longer than their timeout and what the broker's check may take. It checks every
        so often from its start on.
    looked
        How often brokers have answered.
    oldest_s
        Of all that were seen.
    """

    def __init__(self, client: ClientOptions, prefixes: Collection[str], checks_every_s: float = 10.0) -> None:
        self._client = client
        self._prefixes = sorted(prefixes)
        self._grace_s = checks_every_s + 5
        self._broker_began_s = 0.0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self.too_old: dict[str, float] = {}
        self.looked = 0
        self.oldest_s = 0.0

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def broker_began(self) -> None:
        """The broker that was away takes requests again."""
        self._broker_began_s = time.time()

    def open_now(self) -> set[str]:
        """The transactions that are open."""
        with TransactionClient(self._client, "judge", LIMIT_MS) as client:
            return {one for prefix in self._prefixes for one in client.open_of(prefix)}

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                with TransactionClient(self._client, "watch", LIMIT_MS) as client:
                    while not self._ending.wait(EVERY_S):
                        self._look(client)
            except GroupKafkaError:  # a broker is away
                self._ending.wait(1)

    def _look(self, client: TransactionClient) -> None:
        for prefix in self._prefixes:
            for one, found in client.open_of(prefix).items():
                now_s, started_s = time.time(), found.started_ms / 1000
                age_s = now_s - started_s
                self.oldest_s = max(self.oldest_s, age_s)
                if now_s > max(started_s + found.timeout_ms / 1000, self._broker_began_s) + self._grace_s:
                    self.too_old[one] = max(age_s, self.too_old.get(one, 0))
        self.looked += 1
