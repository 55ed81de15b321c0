"""What explains a run, simulated or measured: slow workers, changes, replays, differences."""
