"""How good a model is: BLEU, chrF, perplexity, and a report a person can read."""
