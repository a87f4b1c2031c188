"""The applications: what the command `qknorm` runs on top of the library."""
