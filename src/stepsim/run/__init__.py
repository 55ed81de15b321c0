"""What ran or is to run, as tables: what waits for what, and when everything happens."""
