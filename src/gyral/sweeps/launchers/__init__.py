"""Launchers, which decide where the jobs of a sweep run: launcher=local, joblib, slurm, ray."""
