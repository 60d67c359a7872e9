"""`stoker doctor`: what Stoker finds on this machine."""

from __future__ import annotations

import json
import platform
import textwrap

from engine.gguf.formats import FORMATS
from engine.kernels.table import Kernels, built_isas
from engine.paths import DEMO_MODEL, config_file, data_dir
from engine.tiers.hardware import read_memory


def doctor(as_json: bool) -> int:
    """Print the findings. Raises KernelError when the kernels are not built."""
    memory = read_memory()
    kernels = Kernels()
    found = {
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "processor": platform.processor() or platform.machine(),
        "threads": kernels.threads,  # one for each physical core
        "kernels": {
            isa: ("chosen" if isa == kernels.isa else "available" if usable else "not available")
            for isa, usable in built_isas().items()
        },
        "tensor formats": [f.name for f in FORMATS.values() if f.id in kernels.formats],
        "memory": f"{memory.available / 2**30:.1f} GiB available of {memory.total / 2**30:.1f} GiB",
        "demo model": str(DEMO_MODEL) if DEMO_MODEL.exists() else "missing",
        "data folder": str(data_dir()),
        "configuration": str(config_file()),
    }
    if as_json:
        print(json.dumps(found))
        return 0
    for key, value in found.items():
        if isinstance(value, dict):
            value = [f"{name} ({state})" for name, state in value.items()]
        text = ", ".join(value) if isinstance(value, list) else str(value)
        wrap = textwrap.TextWrapper(
            100, subsequent_indent=" " * 24, break_long_words=False, break_on_hyphens=False
        )
        print(wrap.fill(f"{key:<24}{text}"))
    return 0
