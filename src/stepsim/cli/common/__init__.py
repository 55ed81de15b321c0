"""What commands share: their options, values as they are typed, and what a terminal is told."""
