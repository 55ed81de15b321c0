"""Many steps: what-ifs of one graph, sweeps, sensitivities, noise."""
