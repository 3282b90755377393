"""Models: the time loop around a cell, inputs before it and predictions after it."""
