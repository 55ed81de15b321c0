"""One module per file format, read and write; a name or a path to a noun."""
