"""A query of Spark's rate source that writes exactly once, and is stopped while Spark begins its first commit.

python stopped_sink_program.py OPTIONS FOLDER [held | by-itself]

Its workers' Python is to make a file "committing" in FOLDER when Spark starts it for a commit, and then to wait for a
file "stopped". With "held" that file is not made, and the program gives up soon;
with "by-itself" the program stops its query.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path

from killed_session import session

from spark_kafka_group import submit
from spark_kafka_group.testing import wait_until
from spark_kafka_group.tools import ending


def main() -> None:
    """Run the query."""
    options, folder, held = json.loads(sys.argv[1]), Path(sys.argv[2]), "held" in sys.argv
    if held:
        ending.STOPS_S = 10  # on a busy machine the first calls to the JVM take seconds
    spark = session()
    with submit.orderly():
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20).load()
        writer = rows.selectExpr("CAST(value AS STRING) value", "CAST(value % 2 AS INT) partition").writeStream
        query = writer.format("groupkafka").options(**options, checkpointLocation=str(folder / "checkpoint")).start()

        def stop() -> None:
            wait_until((folder / "committing").exists, within=100)
            os.kill(os.getpid(), signal.SIGINT)
            wait_until(lambda: not query.isActive, within=30)  # Spark interrupts its thread then
            if not held:
                (folder / "stopped").touch()

        threading.Thread(target=stop).start()
        try:
            query.awaitTermination()
        finally:
            if "by-itself" in sys.argv:
                query.stop()


if __name__ == "__main__":
    main()
