"""The run folder: its recipe, its files, its checkpoints. Below training, decoding and evaluation, which all read it."""
