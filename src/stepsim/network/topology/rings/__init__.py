"""Rings through the NPUs of a group, in an order in which neighbours are near."""
