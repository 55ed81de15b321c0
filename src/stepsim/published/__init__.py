"""Published steps of models against their prediction, and what calibrates it on them."""
