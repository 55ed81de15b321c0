"""Named changes of a profiled run: what each would take, and which cannot be told."""
