"""How values become text, and text values: for terminals, tables and JSON."""
