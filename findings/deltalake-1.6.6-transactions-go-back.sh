#!/usr/bin/env bash
# deltalake 1.6.6 (PyPI), app_transactions of a commit: the application and its version, by which a writer of micro-batches is idempotent.
# Guess: a commit with a version that the table has already writes nothing, as Delta's writer in Spark does with txnAppId and
# txnVersion, or it is refused; and the version of an application never falls.
# Instead each commit is written, and its version stands: batch 5 that comes again doubles its rows, and batch 3 that comes late, as
# of a query that was started from an older checkpoint, makes 3 the table's version, so that 4 and 5 look as if they were not there.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install -q --no-compile deltalake==1.6.6 pyarrow==26.0.1
cat > "$folder/program.py" <<'PYTHON'
import sys
from importlib.metadata import version

import pyarrow
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

print("deltalake", version("deltalake"))
found = []
for batch in (4, 5, 5, 3):
    properties = CommitProperties(app_transactions=[Transaction("billing", batch)])
    write_deltalake(sys.argv[1], pyarrow.table({"batch": [batch]}), mode="append", commit_properties=properties)
    table = DeltaTable(sys.argv[1])
    found.append((table.transaction_version("billing"), sorted(table.to_pyarrow_table()["batch"].to_pylist())))
    print(f"batch {batch} is written: version of billing {found[-1][0]}, batches in the table {found[-1][1]}")
assert found == [(4, [4]), (5, [4, 5]), (5, [4, 5, 5]), (3, [3, 4, 5, 5])]
PYTHON
"$folder/env/bin/python" "$folder/program.py" "$folder/table"
