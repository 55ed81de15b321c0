"""Profiles: what every rank did in some steps, whatever tool recorded it."""
