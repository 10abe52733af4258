"""Whole models, one family a file, each with its own short block."""
