"""A device measured alone: which kernels, who times them, and what their times say of it."""
