"""What the rows of a model are built with: shards of parameters, gaps of the host."""
