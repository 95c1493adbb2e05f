"""Values of records to typed Arrow columns, where the records are."""
