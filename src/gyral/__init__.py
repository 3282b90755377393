"""Gyral: recurrent memory experiments. Any cell, any task, any optimizer, one command line."""
