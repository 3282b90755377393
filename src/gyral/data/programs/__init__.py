"""Small Python programs that print one integer, after Zaremba and Sutskever (2014, arXiv:1410.4615)."""
