"""The command `gyral`: `gyral train model=rum task=copy` is `python -m gyral.train model=rum task=copy`."""

import runpy
import sys

COMMANDS = {
    "train": "train a model on a task, or sweep over many",
    "evaluate": "evaluate the checkpoint of a run",
    "generate": "write text, surprisal, answers or summaries with a trained model",
    "report": "show tables and figures of runs",
    "fetch": "download published corpora",
    "dashboard": "save dashboards in Weights & Biases",
}


def main() -> None:
    """Run the command that the first argument names."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("--help", "-h"):
        width = max(map(len, COMMANDS))
        print("usage: gyral <command> [options]\n")
        print("\n".join(f"  {command:{width}}  {what}" for command, what in COMMANDS.items()))
        print("\n`gyral <command> --help` lists the options of a command.")
        return
    if name == "--version":
        from importlib.metadata import version

        print(f"gyral {version('gyral')}")
        return
    if name not in COMMANDS:
        print(f"error: {name}: must be one of {', '.join(COMMANDS)}", file=sys.stderr)
        sys.exit(1)
    del sys.argv[1]
    runpy.run_module(f"gyral.{name}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
