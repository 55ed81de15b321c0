"""The one page: of the explorer, and with its answers inside of every report."""
