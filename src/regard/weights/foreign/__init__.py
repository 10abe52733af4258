"""Checkpoints from elsewhere, one family a file: a table of names, and their settings as ours."""
