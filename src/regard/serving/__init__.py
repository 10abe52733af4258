"""A run folder as a translator that answers lines, in Python and on a pipe."""
