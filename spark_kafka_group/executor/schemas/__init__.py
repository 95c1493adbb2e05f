"""What a schema of values is: parsed, as Spark's type, and as Arrow's. No JVM is needed."""
