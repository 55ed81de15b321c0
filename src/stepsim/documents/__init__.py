"""A run told as a trace: processes, their threads, and what runs on each from when to when."""
