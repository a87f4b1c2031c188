"""Recipes, the training loop, and the run folder."""
