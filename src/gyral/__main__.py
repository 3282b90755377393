"""The command `gyral`: `gyral train model=rum task=copy` is `python -m gyral.train model=rum task=copy`."""

import contextlib
import io
import os
import re
import sys

from gyral.core.commands import leave_out_current_directory, limit_spinning, print_version
from gyral.core.errors import UserError, suggest_name
from gyral.core.extras import import_framework
from gyral.core.streams import check_directory, end_without_reader, fail, finish_output, open_streams

COMMANDS = {
    "train": "train a model on a task, or sweep over many",
    "evaluate": "evaluate the checkpoint of a run",
    "predict": "predict for your own inputs",
    "export": "export a model for onnxruntime or C++",
    "generate": "write text, surprisal, answers or summaries with a trained model",
    "report": "show tables and figures of runs",
    "sweep": "print a sweep's definition for agents of Weights & Biases",
    "fetch": "download published corpora",
    "dashboard": "save dashboards in Weights & Biases",
}
PLAIN_WORD = re.compile(r"[\w./=,:@%+~-]+")  # which no shell expands to anything but itself or a path
SUMMARY = "\n".join(f"  {command:10} {summary}" for command, summary in COMMANDS.items())
HELP = f"""usage: gyral <command> [options]

{SUMMARY}

`gyral <command> --help` lists the options of a command. Tab completion in bash:

  eval "$(gyral -sc install=bash)"
"""


def main() -> None:
    """Run the command that the first argument names."""
    try:
        open_streams()  # first: the imports of a command open files
        check_directory()
        leave_out_current_directory()  # and they may find files of the current directory
        limit_spinning()
        run_command()
    except UserError as error:
        fail(str(error))
    except BrokenPipeError:
        end_without_reader()
    except OSError:
        finish_output("\n")  # which fails again if this has been the reason
        raise
    finish_output()


def run_command() -> None:
    """Print the help or the version, or run a command."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("--help", "-h", "help"):
        print(HELP, end="")
    elif name == "--version":
        print_version()
    elif name == "-sc":
        complete() if any(word.startswith("query=") for word in sys.argv) else ask_hydra("")
    elif name in COMMANDS:
        module = import_framework(f"gyral.{name}", f"gyral {name}")
        sys.argv = [str(module.__file__), *sys.argv[2:]]
        module.main()
    else:
        raise UserError(f"{name}: {suggest_name(name, tuple(COMMANDS))}must be one of {', '.join(COMMANDS)}")


def complete() -> None:
    """Complete words in bash by Hydra, but for names of commands and choices in folders, which Hydra does not complete.

    Hydra's script calls `gyral -sc query=bash` with the line in $COMP_LINE, of which Hydra ignores the first word. Bash
    expands the words that are printed, and would execute a name such as "$(rm x)": such words are left out.
    """
    offered = io.StringIO()
    with contextlib.redirect_stdout(offered):
        offer_words()
    print(*filter(PLAIN_WORD.fullmatch, offered.getvalue().split()))


def offer_words() -> None:
    """Print the words with which the line in $COMP_LINE can go on, and perhaps others."""
    from gyral.config.groups import choices

    first, _, rest = os.environ.get("COMP_LINE", "").partition(" ")
    command, space, words = rest.partition(" ")
    group, equals, _ = words.rpartition(" ")[2].partition("=")
    if first and not space:
        print(*COMMANDS)
    elif equals and choices(group):
        print(*(f"{group}={name}" for name in choices(group)))
    elif command not in ("sweep", "fetch"):  # which are not Hydra's
        os.environ["COMP_LINE"] = rest
        ask_hydra(command)


def ask_hydra(command: str) -> None:
    """Have Hydra answer `-sc` for the options of a command."""
    sys.argv[0] = "gyral"
    import_framework(f"gyral.{command if command in COMMANDS else 'train'}", "gyral -sc").main()


if __name__ == "__main__":
    main()
