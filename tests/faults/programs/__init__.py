"""Programs that runs start, each in a process of its own."""
