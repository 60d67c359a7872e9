"""`stoker doctor`: what Stoker finds on this machine."""

from __future__ import annotations

import json
import platform

from engine.kernels.table import Kernels, available_isas, physical_cores
from engine.paths import DEMO_MODEL, config_file, data_dir
from engine.tiers.hardware import read_memory


def doctor(as_json: bool) -> int:
    """Print the findings. Raises KernelError when the kernels are not built."""
    memory = read_memory()
    found = {
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "processor": platform.processor() or platform.machine(),
        "physical cores": physical_cores(),
        "instruction sets": available_isas(),
        "instruction set in use": Kernels(1).isa,
        "memory": f"{memory.available / 2**30:.1f} GiB available of {memory.total / 2**30:.1f} GiB",
        "demo model": str(DEMO_MODEL) if DEMO_MODEL.exists() else "missing",
        "data folder": str(data_dir()),
        "configuration": str(config_file()),
    }
    if as_json:
        print(json.dumps(found))
        return 0
    for key, value in found.items():
        print(f"{key:<24}{', '.join(value) if isinstance(value, list) else value}")
    return 0
