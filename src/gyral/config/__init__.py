"""From a command line to objects."""
