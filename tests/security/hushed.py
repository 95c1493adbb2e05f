"""A Spark program that uses secrets in every way and shows all it can; the tests search its output for secrets.

Its arguments: a JSON file with options for a stream and a batch read and with wrong options, and a directory for what
comes out.
"""

import contextlib
import json
import pickle
import sys
import urllib.request
from pathlib import Path

from pyspark.sql import SparkSession

from spark_kafka_group import GroupKafkaDataSource, GroupKafkaListener
from spark_kafka_group.options import Options

given = json.loads(Path(sys.argv[1]).read_text())
out = Path(sys.argv[2])
(out / "events").mkdir()

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.ui.port", "0")
    .config("spark.eventLog.enabled", "true")
    .config("spark.eventLog.compress", "false")
    .config("spark.eventLog.dir", (out / "events").as_uri())
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.python.unix.domain.socket.enabled", "true")
    .config("spark.sql.redaction.options.regex", given["redaction"])
    .getOrCreate()
)
spark.dataSource.register(GroupKafkaDataSource)
spark.sparkContext.setLogLevel("DEBUG")

stream = spark.readStream.format("groupkafka").options(**given["stream"]).load()
stream.explain(True)
with GroupKafkaListener(spark):
    query = (
        stream.writeStream.format("parquet")
        .option("path", str(out / "rows"))
        .option("checkpointLocation", str(out / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
query.explain(True)
print(query.lastProgress.json, query.status)

batch = spark.read.format("groupkafka").options(**given["batch"]).load()
for mode in ("extended", "formatted"):
    batch.explain(mode=mode)
print("rows:", spark.read.parquet(str(out / "rows")).count(), batch.count())
print(batch, stream, batch.schema)

for wrong in given["wrong"]:
    for load in (Options.parse, lambda options: spark.read.format("groupkafka").options(**options).load()):
        with contextlib.suppress(Exception):
            load(wrong)
        try:
            load(wrong)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is shown
            print(type(error), error, repr(error))
        else:
            raise AssertionError("there should be an error")

for each in ("stream", "batch"):
    parsed = Options.parse(given[each])
    copied = pickle.loads(pickle.dumps(parsed))
    print(parsed, repr(copied), f"{copied.security}", copied.security.__dict__, vars(copied))

ui = spark.sparkContext.uiWebUrl
api = f"{ui}/api/v1/applications/{spark.sparkContext.applicationId}"
for number, path in enumerate(("/environment", "/sql?details=true&planDescription=true", "/jobs", "/stages")):
    (out / f"api-{number}.json").write_bytes(urllib.request.urlopen(api + path).read())
for number, path in enumerate(
    ("/environment/", "/SQL/", "/SQL/execution/?id=0", "/SQL/execution/?id=1", "/StreamingQuery/")
):
    (out / f"page-{number}.html").write_bytes(urllib.request.urlopen(ui + path).read())
spark.stop()
