"""Sweeps on a real SLURM: preempted, at their time limit, cancelled, killed, collected by a second start."""
