"""Routes between NPUs over listed links."""
