"""Commands that take profiles."""
