"""One member of a group: joining, commits, leaving; and a group as others see it."""
