"""Faults, and what becomes of records under each: members of a group are stopped, killed, cut off and led astray.

Tests of a few seconds (``test_*``) and runs of hours share the programs that are hit (``programs/``), the hosts whose
links are cut (``hosts/``), and the judge (``judge/``).

* ``make faults`` repeats each fault of the matrix (``cells/``) under load: ``run`` makes a ``scene`` of brokers, a
  ``load`` that names each record, and a query in real Spark (``running``). ``once/`` does it to several queries that
  write to topics, ``endurance`` for hours. ``report/`` writes the tables.
* ``chaos`` starts and ends members of one group (``crew``) at random.
"""

import os
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
PROGRAMS = TESTS / "faults" / "programs"
ROOMS = (".", "security", "cluster", "spark/kafka_source")
"""Rooms of tests whose modules runs use."""
PYTHONPATH = os.pathsep.join(map(str, (ROOT, TESTS)))
"""Of programs that runs start."""
sys.path += [str(TESTS / room) for room in ROOMS]
