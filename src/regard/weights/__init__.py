"""The run folder: weights and all that made them, written safely and read suspiciously."""
