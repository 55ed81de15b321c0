"""What a step computes: rows with their compute and collectives, and how they are scaled."""
