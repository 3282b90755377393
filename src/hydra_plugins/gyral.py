"""Our launchers and sweepers where Hydra finds them: it takes plugins from the namespace hydra_plugins alone."""

from gyral.sweeps import grid as sweepers
from gyral.sweeps import launchers
from gyral.sweeps import optuna as tune


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
