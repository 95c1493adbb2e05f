"""The executors' half: a task's offset ranges fetched, decoded into Arrow, and handed to Spark."""
