"""``python -m spark_kafka_group``: shows a group from outside, sets its offsets, and checks a run of it.

Each command is a module with ``add_to``, which declares its arguments, and ``run``, which returns the exit code.
"""
