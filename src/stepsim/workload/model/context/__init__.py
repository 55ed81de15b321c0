"""Attention of a sequence that ranks share: what a framework does, its hops, and their parts."""
