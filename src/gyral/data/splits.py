"""Names of the splits of a data set."""

SPLITS = ("train", "val", "test")
