"""Optional fast paths of the functions in `src.ops`, one module a kind of device. Nothing here is needed to import."""


class UnavailableError(RuntimeError):
    """There is no fast path here; the message says why."""
