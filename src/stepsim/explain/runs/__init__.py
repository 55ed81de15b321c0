"""Runs with stage times, replayed, inferred, predicted and changed; and how far off that is."""
