"""What explains a step, simulated or measured: where its time goes, what holds it up or helps."""
