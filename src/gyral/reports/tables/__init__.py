"""Tables of runs: the content of a report, independent of its format."""
