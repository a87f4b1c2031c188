"""The models that are built on the attention library."""
