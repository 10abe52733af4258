"""Text to ids and back, in order and resumable: tokenizer, corpus, batches."""
