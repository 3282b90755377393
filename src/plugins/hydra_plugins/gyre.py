"""Our launchers and sweepers where Hydra finds them: it takes plugins from the namespace hydra_plugins alone."""

from src import launchers, sweepers, tune


class Local(launchers.Local):
    """launcher=local."""


class Joblib(launchers.Joblib):
    """launcher=joblib."""


class Slurm(launchers.Slurm):
    """launcher=slurm."""


class Ray(launchers.Ray):
    """launcher=ray."""


class Grid(sweepers.Grid):
    """A sweep without a sweeper of its own."""


class Tune(tune.Tune):
    """sweep=tune."""
