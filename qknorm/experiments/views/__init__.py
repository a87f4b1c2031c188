"""What an experiment can show: one file each, and its line in the table."""
