"""What is shown, as data: names with values, tables, texts. The terminal and pages print it."""
