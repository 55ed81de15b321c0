"""Measured times of collectives."""
