"""What carries a step: links, collectives over them, and the rates of transfers that share."""
