"""kafka.client.rack: the rack must be one that brokers have."""

from __future__ import annotations

from spark_kafka_group.errors import OptionError
from spark_kafka_group.options import Options
from spark_kafka_group.wire import LogClient


def check(options: Options) -> None:
    """Refuse a rack that no broker has. Only executors know the values of their environment variables.

    While replicas are on brokers that are away, their racks are not known, and any rack is accepted: a query can start
    while its own rack is down. Without a rack in the options no broker is asked.

    Raises
    ------
    OptionError, BrokerError
    """
    rack = options.fetching.rack({})
    if not rack:
        return
    client = LogClient(options)
    try:
        client.partitions(options.reading.subscription)
        racks = client.racks()
    finally:
        client.close()
    if racks is None or rack in racks:
        return
    known = f"the brokers' racks are {', '.join(sorted(racks))}" if racks else "no broker has a broker.rack"
    raise OptionError(f"kafka.client.rack ({rack}) is not the rack of a broker: {known}. Change it or leave it out")
