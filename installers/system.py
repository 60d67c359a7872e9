"""What a window needs of the system: a display, shared libraries, a font."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from environment import Checkout, Progress, SetupError, read_stamp, run_logged, write_stamp

# The libraries that Qt's window system plugin links to, and where Debian and Ubuntu keep them.
PACKAGE_OF = {
    "libEGL.so.1": "libegl1",
    "libGL.so.1": "libgl1",
    "libX11-xcb.so.1": "libx11-xcb1",
    "libX11.so.6": "libx11-6",
    "libdbus-1.so.3": "libdbus-1-3",
    "libfontconfig.so.1": "libfontconfig1",
    "libfreetype.so.6": "libfreetype6",
    "libglib-2.0.so.0": "libglib2.0-0",
    "libgthread-2.0.so.0": "libglib2.0-0",
    "libxcb-cursor.so.0": "libxcb-cursor0",
    "libxcb-icccm.so.4": "libxcb-icccm4",
    "libxcb-image.so.0": "libxcb-image0",
    "libxcb-keysyms.so.1": "libxcb-keysyms1",
    "libxcb-randr.so.0": "libxcb-randr0",
    "libxcb-render-util.so.0": "libxcb-render-util0",
    "libxcb-render.so.0": "libxcb-render0",
    "libxcb-shape.so.0": "libxcb-shape0",
    "libxcb-shm.so.0": "libxcb-shm0",
    "libxcb-sync.so.1": "libxcb-sync1",
    "libxcb-util.so.1": "libxcb-util1",
    "libxcb-xfixes.so.0": "libxcb-xfixes0",
    "libxcb-xkb.so.1": "libxcb-xkb1",
    "libxcb.so.1": "libxcb1",
    "libxkbcommon-x11.so.0": "libxkbcommon-x11-0",
    "libxkbcommon.so.0": "libxkbcommon0",
}


def has_display(env: Mapping[str, str], platform: str = sys.platform) -> bool:
    return platform != "linux" or bool(env.get("DISPLAY") or env.get("WAYLAND_DISPLAY"))


def missing_packages(ldd: str, has_font: bool) -> list[str]:
    """The Debian packages that hold what ldd did not find; an unknown library stands for itself."""
    names = re.findall(r"(?m)^\s*(\S+) => not found", ldd)
    packages = {PACKAGE_OF.get(name, name) for name in names}
    return sorted(packages | (set() if has_font else {"fonts-dejavu-core"}))


def system_needs(at: Checkout, tests: bool) -> list[str]:
    """Packages that the system lacks for a window, or for the tests of one."""
    if sys.platform != "linux" or not shutil.which("ldd"):
        return []
    qt = at.venv.glob("lib/python*/site-packages/PySide6/Qt")
    plugins = [str(folder / "plugins/platforms/libqxcb.so") for folder in qt]
    out = subprocess.run(["ldd", *plugins], capture_output=True, encoding="utf-8", check=False)
    fonts = [Path("/usr/share/fonts"), Path("/usr/local/share/fonts"), Path.home() / ".fonts"]
    has_font = any(next(folder.rglob("*.[ot]tf"), None) for folder in fonts)
    needs = missing_packages(out.stdout, has_font)
    return needs + (["xvfb"] if tests and not shutil.which("Xvfb") else [])


def system_ready(at: Checkout, tests: bool) -> bool:
    """Whether a window can open. Installs what is missing where that is allowed, else names it."""
    key = "system, tests" if tests else "system"
    stamp = read_stamp(at)
    if key in stamp:
        return True
    needs = system_needs(at, tests)
    if needs and os.geteuid() == 0 and shutil.which("apt-get"):
        apt = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=120"]
        quiet = {"DEBIAN_FRONTEND": "noninteractive"}
        with Progress(1, 1, f"{len(needs)} system packages for the window") as progress:
            try:
                run_logged(at, [*apt, "update"], progress.saw, **quiet)
                install = [*apt, "install", "-y", "--no-install-recommends", *needs]
                run_logged(at, install, progress.saw, **quiet)
            except SetupError as error:
                print(f"{error}.")
        needs = system_needs(at, tests)
    if needs:
        print(f"The window needs more of the system: sudo apt-get install {' '.join(needs)}")
        return False
    write_stamp(at, {**stamp, key: "ok"})
    return True
