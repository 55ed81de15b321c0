"""The task graph of a step: actions, the programs of ranks, and how they are joined."""
