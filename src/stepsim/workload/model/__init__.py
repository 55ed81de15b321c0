"""A model, how it is split and what it runs on: nouns, operators, memory and step time."""
