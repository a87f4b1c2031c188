"""Other programs that follow a run while it trains: one file each, and a table."""
