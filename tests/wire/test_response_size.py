"""A response that says it is larger than any can be is refused before memory is taken for it."""

import socket
import struct
import tracemalloc

import pytest

from spark_kafka_group.options import Options
from spark_kafka_group.wire.client.connect import LARGEST_BATCH
from spark_kafka_group.wire.fetch.fetch_connection import FetchConnection

OPTIONS = {"kafka.bootstrap.servers": "x:1", "kafka.group.id": "g", "subscribe": "t"}


@pytest.mark.parametrize("size", [LARGEST_BATCH + 1, 2**31 - 1, 3, 0, -1, -(2**31)])
def test_a_size_that_cannot_be_is_refused(size):
    ours, brokers = socket.socketpair()
    connection = FetchConnection(ours, Options.parse(OPTIONS), "executor", 12)
    with brokers:
        brokers.sendall(struct.pack(">i", size))
        tracemalloc.start()
        try:
            with pytest.raises(
                OSError, match=f"a response gives its length as {size}, and at most {LARGEST_BATCH} are possible"
            ):
                connection.receive()
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()
            connection.close()
