"""Which plan of a model is best: a space of plans, priced together, the best ones simulated."""
