"""A query that writes exactly once what it reads, until it has read all there is: to be killed.

python exactly_once_program.py SERVERS INPUT OUTPUT PREFIX CHECKPOINT
"""

from __future__ import annotations

import sys

from killed_session import session


def main() -> None:
    """Run the query."""
    servers, source, output, prefix, checkpoint = sys.argv[1:]
    spark = session()
    read_from = {"kafka.bootstrap.servers": servers, "subscribe": source, "startingOffsets": "earliest"}
    rows = spark.readStream.format("groupkafka").options(maxOffsetsPerTrigger="100", **read_from).load()
    # State, too: what a batch that was decided before does not write, it still remembers.
    known = rows.select("value").dropDuplicates(["value"])
    write_to = {"kafka.bootstrap.servers": servers, "topic": output, "deliveryGuarantee": "exactly-once"}
    writer = known.writeStream.format("groupkafka").options(**write_to, **{"kafka.transactional.id": prefix})
    writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
