"""How a task writes its rows: where each row goes, batches in flight, their answers, transactions."""
