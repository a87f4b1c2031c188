"""What a count of the text knows before training begins: which pieces translate which, and vectors to start from."""
