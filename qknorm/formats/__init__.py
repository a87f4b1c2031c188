"""Documents that come back as themselves: one file for each format, and its line in a table."""
