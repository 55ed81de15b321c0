"""Measured training steps: documents, checks and what they say."""
