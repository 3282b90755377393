"""What every other subpackage builds on: no Hydra, no Lightning."""
