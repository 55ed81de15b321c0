"""Traces and logs of measured runs, and calibrations made from them."""
