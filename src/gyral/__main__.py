"""The command `gyral`: `gyral train model=rum task=copy` is `python -m gyral.train model=rum task=copy`."""

import importlib
import os
import sys

from gyral.core.errors import suggest_name

COMMANDS = {
    "train": "train a model on a task, or sweep over many",
    "evaluate": "evaluate the checkpoint of a run",
    "generate": "write text, surprisal, answers or summaries with a trained model",
    "report": "show tables and figures of runs",
    "sweep": "print a sweep's definition for agents of Weights & Biases",
    "fetch": "download published corpora",
    "migrate": "rewrite runs of an earlier version to today's names",
    "dashboard": "save dashboards in Weights & Biases",
}
SUMMARY = "\n".join(f"  {command:10} {summary}" for command, summary in COMMANDS.items())
HELP = f"""usage: gyral <command> [options]

{SUMMARY}

`gyral <command> --help` lists the options of a command. Tab completion in bash:

  eval "$(gyral -sc install=bash)"
"""


def main() -> None:
    """Run the command that the first argument names."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("--help", "-h"):
        print(HELP, end="")
    elif name == "--version":
        from importlib.metadata import version

        print(f"gyral {version('gyral')}")
    elif name == "-sc":
        complete()
    elif name in COMMANDS:
        module = importlib.import_module(f"gyral.{name}")
        sys.argv = [str(module.__file__), *sys.argv[2:]]
        module.main()
    else:
        hint = suggest_name(name, tuple(COMMANDS))
        print(f"error: {name}: {hint}must be one of {', '.join(COMMANDS)}", file=sys.stderr)
        sys.exit(1)


def complete() -> None:
    """Answer Hydra's shell completion: print the script that installs it, or the completions of $COMP_LINE.

    Hydra's script calls the first word of the line with `-sc query=bash`, and Hydra strips that word from the line.
    """
    command = "train"
    if sys.argv[2:] == ["query=bash"]:
        words = os.environ["COMP_LINE"].split()
        if len(words) == 1 or (os.environ["COMP_LINE"].endswith(words[1]) and len(words) == 2):
            print(" ".join(COMMANDS))
            return
        command = words[1]
        os.environ["COMP_LINE"] = os.environ["COMP_LINE"].split(maxsplit=1)[1]
        if command not in COMMANDS or command in ("sweep", "fetch", "migrate"):
            return
    sys.argv[0] = "gyral"
    importlib.import_module(f"gyral.{command}").main()


if __name__ == "__main__":
    main()
