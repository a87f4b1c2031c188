"""The library: attention with Lp-normalised queries and keys. It needs only torch."""
