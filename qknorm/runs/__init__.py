"""The run folder: its recipe, its files, its checkpoints. Training, decoding and evaluation all stand on it."""
