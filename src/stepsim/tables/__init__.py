"""Tables of what ran: one row per span, whatever it came from."""
