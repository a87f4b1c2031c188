"""How good a translation is, and whether a difference means anything."""
