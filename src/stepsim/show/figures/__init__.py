"""Figures, one module per kind; the only user of matplotlib."""
