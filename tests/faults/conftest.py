"""The fixture `attack` and the option --attacks are in tests/helpers/attacks.py."""
