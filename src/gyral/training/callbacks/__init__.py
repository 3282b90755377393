"""Callbacks of a training run, one file each. Every class is the `_target_` of a node in conf/callbacks."""
