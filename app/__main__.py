"""The `stoker-app` command: the window."""

from __future__ import annotations

import argparse
import sys

from app import strings


def main() -> None:
    parser = argparse.ArgumentParser(prog="stoker-app", description=strings.COMMAND_HELP)
    parser.add_argument("file", nargs="?", default="", help=strings.COMMAND_FILE)
    arguments = parser.parse_args()
    # Imported here: `--help` needs no window system.
    from app.main import run

    sys.exit(run([arguments.file] if arguments.file else []))


if __name__ == "__main__":
    main()
