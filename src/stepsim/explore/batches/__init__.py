"""Real batches: steps whose microbatches hold documents of different lengths."""
