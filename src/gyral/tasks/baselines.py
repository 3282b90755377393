"""Losses of predictors that know only the targets of the training split."""

import numpy as np


def frequency_loss(train: np.ndarray, test: np.ndarray, classes: int, weights: np.ndarray | None = None) -> float:
    """Return the cross-entropy, in nats, of test classes under the frequencies of the training classes.

    Counts start at 1 (add-one smoothing), so that no class has probability 0.

    Args:
        train, test: (n,) classes.
        classes: number of classes.
        weights: the weights of the classes in the loss, (classes,). None: they are equal.
    """
    counts = np.bincount(train, minlength=classes) + 1
    if weights is None:
        return float(-np.log(counts / counts.sum())[test].mean())
    losses = -np.log(counts * weights / (counts @ weights))
    return float(np.average(losses[test], weights=weights[test]))


def constant_loss(train: np.ndarray, test: np.ndarray) -> float:
    """Return the mean squared error of the mean of the training targets on the test targets, both (n, Y)."""
    errors = test.astype(np.float64) - train.mean(axis=0, dtype=np.float64)
    return float(np.square(errors).mean())
