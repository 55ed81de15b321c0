"""What a rank holds of a model: parameters, and what is kept of a microbatch."""
