"""Who runs which part, in which order: ranks, stages, schedules, point-to-point runtimes."""
