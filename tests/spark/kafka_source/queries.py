"""A Spark with its own kafka source, in a process of its own as it needs jars; runs what its stdin says, line by line.

Each line is JSON: options (of each source, by its name, if named), checkpoint, out, counted. The query reads what there
is now and writes values, or how often each came, into parquet by batch id, overwriting. Or it is JSON of folder, sink,
checkpoint: the query reads lines of files, and writes them with Spark's own kafka sink, which gets these options. The
answer is a line of JSON with the error, or null.
"""

import json
import sys
from functools import reduce

from pyspark.sql import DataFrame, SparkSession

SOURCE_EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"

answers = sys.stdout
sys.stdout = sys.stderr
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars", sys.argv[1])
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")


def into_parquet(order):
    def write(df, batch_id):
        df.write.mode("overwrite").parquet(f"{order['out']}/batch={batch_id}")

    if order["named"]:
        streams = [spark.readStream.name(name).format("kafka").options(**o) for name, o in order["options"].items()]
    else:
        streams = [spark.readStream.format("kafka").options(**order["options"])]
    df = reduce(DataFrame.union, (stream.load().select("value") for stream in streams))
    df = df.groupBy("value").count() if order["counted"] else df
    return df.writeStream.foreachBatch(write).outputMode("update")


def into_a_topic(order):
    return spark.readStream.text(order["folder"]).writeStream.format("kafka").options(**order["sink"])


for line in sys.stdin:
    order = json.loads(line)
    spark.conf.set(SOURCE_EVOLUTION, str(order.get("named", False)))
    writer = into_a_topic(order) if "sink" in order else into_parquet(order)
    query = writer.option("checkpointLocation", order["checkpoint"]).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
        answer = None
    except Exception as error:  # noqa: BLE001 - reported to the test
        answer = str(error)
    print(json.dumps(answer), file=answers, flush=True)
spark.stop()
