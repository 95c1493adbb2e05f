"""A query into parquet, and what its progress says of its source."""

import json


class Sink:
    """A query into parquet by foreachBatch, overwriting by batch id; and its result."""

    def __init__(self, spark, directory):
        self.spark, self.directory = spark, directory
        self.checkpoint = str(directory / "checkpoint")

    def start(self, settings, trigger=None, during=lambda batch_id: None):
        def write(df, batch_id):
            df.write.mode("overwrite").parquet(f"{self.directory}/out/batch={batch_id}")
            during(batch_id)

        stream = self.spark.readStream.format("groupkafka").options(**settings).load()
        writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", self.checkpoint)
        return writer.trigger(**(trigger or {"availableNow": True})).start()

    def run(self, settings):
        """Read all records up to now; returns the progress of batches with records."""
        query = self.start(settings)
        query.awaitTermination()
        return [p for p in query.recentProgress if p.numInputRows]

    def values(self):
        if not list((self.directory / "out").glob("*/_SUCCESS")):
            return []
        rows = self.spark.read.parquet(f"{self.directory}/out").select("value").collect()
        return sorted(int(bytes(row.value)[1:]) for row in rows)


def ends(progress):
    return [json.loads(p.sources[0].endOffset) for p in progress]
