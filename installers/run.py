#!/usr/bin/env python3
"""Set Stoker up from a checkout, then run it. Needs Python 3.11 and a C++ compiler, nothing else.

    python3 installers/run.py                        open the window with the demo model
    python3 installers/run.py -- chat "Hello"        run the `stoker` command with these arguments
    python3 installers/run.py test [pytest args]     lint, types and tests: the whole gate

The first run makes `.venv` with the exact packages of `installers/locks/` and builds the kernels.
A stamp in `.venv` says for which interpreter, locks and sources that was done, so later runs start
at once, without the network. Everything the tools print goes to `build/setup.log`.
"""

import subprocess
import sys

OLDEST = (3, 11)


def works(python):
    return subprocess.call([python, "-c", ""], stderr=subprocess.DEVNULL) == 0  # shims may not


def refuse_old_python():
    """This file alone must be readable by any old Python, so that it can say what is wrong."""
    text = "run.py: Stoker needs Python {}.{} or newer, this is {}.{}."
    text = text.format(*(OLDEST + tuple(sys.version_info[:2])))
    try:
        from shutil import which

        found = [which("python3." + minor) for minor in ("13", "12", "11")]
        newer = [path for path in found if path and works(path)]
    except ImportError:
        newer = []
    hint = "Run it with " + newer[0] if newer else "Install one and run this with it"
    sys.exit(text + " " + hint + ".")


if __name__ == "__main__":
    if sys.version_info < OLDEST:
        refuse_old_python()
    from launch import main

    sys.exit(main(sys.argv[1:], __doc__.strip()))
