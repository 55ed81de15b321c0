"""Running a task graph: prices, shared links, alike ranks, the SimPy engine, the timeline."""
