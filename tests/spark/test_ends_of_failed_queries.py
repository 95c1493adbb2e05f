"""How a program in a `submit.orderly` block ends when its query fails, in real Spark."""

import pytest
from pyspark.errors import StreamingQueryException

from spark_kafka_group.tools.ending import checkpoint_of


def test_the_checkpoint_of_a_query_that_failed_is_known_by_its_error(spark, tmp_path):
    def fail(df, batch):
        raise ValueError("no")

    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = rows.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).foreachBatch(fail).start()
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination(60)
    assert checkpoint_of(raised.value).endswith(f"{tmp_path}/checkpoint")
    assert checkpoint_of(ValueError("of no query")) == ""
