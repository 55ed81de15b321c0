"""Thousands of scenarios of one task graph at once, equal to the engine to the picosecond.

Unless links are shared fairly every time of a run is a maximum of sums of durations, so one pass
over the graph with a vector of scenarios in place of each number evaluates all of them.
"""
