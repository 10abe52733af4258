"""The parts of a Transformer: masks, positions, attention, feed-forward, norms, cache."""
