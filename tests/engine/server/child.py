"""`stoker serve` with the fake model, for tests that need a whole process.

Arguments: a JSON object with `server` (ServerSettings), `parent_pipe`, and what goes wrong: `fail`
raises an error while loading, `stuck` never ends loading. Prints `closed` when the model is closed.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from engine.errors import ModelFileError, StokerError
from engine.server.contract import Progress
from engine.server.http import serve
from engine.settings import EngineSettings, ServerSettings
from tests.engine.server.fake import FakeModel


class Child(FakeModel):
    def close(self) -> None:
        super().close()
        print("closed", flush=True)


def main(options: dict[str, Any]) -> int:
    def open_model(settings: EngineSettings, progress: Progress) -> Child:
        if options.get("fail"):
            raise ModelFileError("model.gguf ends at byte 100, expected 200", "Download it again")
        while options.get("stuck"):
            progress("weights", 1, 2)
            time.sleep(0.01)
        while options.get("deaf"):
            time.sleep(0.01)
        return Child()

    try:
        serve(
            EngineSettings(),
            ServerSettings(**options.get("server", {"port": 0})),
            parent_pipe=options.get("parent_pipe", False),
            open_model=open_model,
        )
    except StokerError as error:
        print(f"stoker: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
