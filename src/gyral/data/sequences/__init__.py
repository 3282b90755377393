"""The user's own sequences, from files with columns."""
