"""The bAbI question answering tasks."""
