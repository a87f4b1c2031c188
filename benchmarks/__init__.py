"""Speed and memory, each measured against the alternatives in one interleaved run (`make bench`)."""
