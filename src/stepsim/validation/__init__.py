"""Measured runs simulated again, predicted, inferred and changed; and how far off that is."""
