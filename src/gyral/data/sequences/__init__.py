"""The user's own sequences, from files of NumPy arrays or Parquet columns."""
