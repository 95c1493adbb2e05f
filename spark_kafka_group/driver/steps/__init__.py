"""What a micro-batch goes through, one file a step: the session calls them in their order."""
