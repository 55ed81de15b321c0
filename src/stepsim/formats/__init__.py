"""File formats: one module per format, read and write."""
