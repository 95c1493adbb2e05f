"""The fault matrix: which records are lost or read twice under which fault. ``make faults`` runs it.

A cell (``cells/``) is a fault, and the count of its repetitions. A run of a cell has brokers, a load that names each
record (``load``), a query in real Spark with a parquet sink (``program``), and the fault, again and again (``scene``).
What is left behind (``observed``) is judged by pure functions (``invariants``).
"""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
# `faults` before `chaos`: both have a module `query`, and the points at which a query stops dead are in the first.
ROOMS = (".", "faults", "chaos", "hosts", "security", "cluster", "spark/kafka_source")
sys.path += [str(TESTS / room) for room in ROOMS]
