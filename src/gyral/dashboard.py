"""Save dashboards in Weights & Biases: a workspace of a project, and a report per table of a paper. Imports no torch.

    python -m src.dashboard project=gyral

See `python -m src.dashboard --help`.
"""

from omegaconf import DictConfig

from gyral.config import command_line as cli
from gyral.core.checks import check_choice
from gyral.reports import catalogue, wandb_dashboards


def dashboard(config: DictConfig) -> None:
    """Save the workspace of a project and the reports of its sweeps, and print their addresses."""
    names = [sweep.name for sweep in catalogue.named()]
    shown = [check_choice("sweep", config.sweep, names)] if config.sweep is not None else names
    wandb_dashboards.save(config.entity, str(config.project), shown)


def main() -> None:
    """Run `gyral dashboard` on the command line's arguments."""
    cli.main(dashboard, "_report/dashboard")


if __name__ == "__main__":
    main()
