"""Several queries of one program that write to topics: killed at every step of a write, in storms, and held up."""
