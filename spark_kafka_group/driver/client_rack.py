"""kafka.client.rack: the rack must be one that brokers have."""

from __future__ import annotations

from spark_kafka_group.errors import OptionError
from spark_kafka_group.options import Options
from spark_kafka_group.wire import LogClient


def look_up(options: Options) -> None:
    """As :func:`check`, by new metadata. Without a rack in the options no broker is asked.

    Raises
    ------
    OptionError, BrokerError
    """
    if not options.fetching.rack({}):
        return
    client = LogClient(options)
    try:
        client.partitions(options.reading.subscription)
        check(options, client)
    finally:
        client.close()


def check(options: Options, client: LogClient) -> None:
    """Refuse a rack that no broker has in the last metadata. Only executors know values of their environment variables.

    While replicas are on brokers that are away, their racks are not known, and any rack is accepted: a query can start
    while its own rack is down.

    Raises
    ------
    OptionError
    """
    rack = options.fetching.rack({})
    racks = client.racks() if rack else None
    if racks is None or rack in racks:
        return
    known = f"the brokers' racks are {', '.join(sorted(racks))}" if racks else "no broker has a broker.rack"
    raise OptionError(f"kafka.client.rack ({rack}) is not the rack of a broker: {known}. Change it or leave it out")
