"""Random steps: the distribution of the step time."""
