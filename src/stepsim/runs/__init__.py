"""Measured and published steps against the simulation: replayed, inferred, predicted, changed."""
