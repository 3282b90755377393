"""Training runs."""

from gyral import tasks as tasks  # first: it imports Lightning
