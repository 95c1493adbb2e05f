"""A query into a sink that comes with jars, from a new checkpoint: JARS FORMAT FOLDER CHECKPOINT SERVERS TOPIC GROUP.

It reads what there is, and prints all that the sink has then.
"""

import json
import sys

from pyspark.sql import SparkSession

from spark_kafka_group import GroupKafkaDataSource

jars, sink, folder, checkpoint, servers, topic, group = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.jars", jars).config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
if sink == "delta":
    builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension").config(
        "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    )
spark = builder.getOrCreate()
spark.dataSource.register(GroupKafkaDataSource)
kafka, written = {"kafka.bootstrap.servers": servers}, f"{topic}-written"
read = {"subscribe": topic, "kafka.group.id": group, "kafka.auto.offset.reset": "earliest"}
rows = spark.readStream.format("groupkafka").options(**kafka, **read).load().select("value")
into = {"path": f"{folder}/table"} if sink == "delta" else {"topic": written, **kafka}
writer = rows.writeStream.format(sink).options(**into, checkpointLocation=f"{folder}/{checkpoint}")
writer.trigger(availableNow=True).start().awaitTermination()
left = (
    spark.read.format("delta").load(f"{folder}/table")
    if sink == "delta"
    else spark.read.format("groupkafka").options(**kafka, subscribe=written).load()
)
print(json.dumps(sorted(int(bytes(row.value)[1:]) for row in left.select("value").collect())))
spark.stop()
