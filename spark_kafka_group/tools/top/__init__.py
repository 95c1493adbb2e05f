"""The command ``top``: all groups, or one, with their rates, again and again."""
