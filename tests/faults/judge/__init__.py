"""What must hold of every run, whatever happened in it."""
