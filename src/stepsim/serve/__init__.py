"""The explorer: a page in the browser that asks stepsim on this machine while a knob is turned."""
