"""How weights change: optimisers and learning rates, each a table of named things that a recipe can choose from."""
