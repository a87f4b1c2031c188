"""From the files people have to batches a model can learn from."""
