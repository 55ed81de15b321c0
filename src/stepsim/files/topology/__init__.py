"""Files that describe a network."""
