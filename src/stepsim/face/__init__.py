"""The Python interface: the words of the command line, as functions."""
