"""A grid of runs from one recipe, and what it says."""
