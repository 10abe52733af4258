"""Sequence layers under one contract: what lets the places of a sequence tell each other."""
