"""``python -m spark_kafka_group``: a group looked into from outside, set to other offsets, and a run of it checked.

Each command is a module with ``add_to``, which declares its arguments, and ``run``, which returns the exit code.
"""
