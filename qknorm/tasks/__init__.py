"""What can be learned: one description per task, and the table of them."""
