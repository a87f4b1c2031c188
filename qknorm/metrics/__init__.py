"""How translations are scored: metrics of one shape, and the table of them."""
