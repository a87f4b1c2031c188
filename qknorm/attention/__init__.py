"""The library: attention with Lp-normalised queries and keys. Needs torch alone."""
