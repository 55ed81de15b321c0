"""One training step: what can be asked of it, made ready, simulated, compared."""
