"""The rules that keep the parts apart. Imports hidden inside functions count like all others."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Data flows to the right, imports point to the left.
LAYERS = (
    ("protocol", "errors", "settings", "paths", "config_file"),
    ("gguf",),
    ("plan",),
    ("tiers",),
    ("kernels",),
    ("model",),
    ("decode",),
    ("text",),
    ("server",),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
OUTSIDE = {"open_model", "__main__", "commands", "bench"}  # these tie the layers together
# Kernels are tensors in, tensors out: they know blocks, never files, plans or stores.
KERNELS_MAY_USE = {
    "engine.errors",
    "engine.gguf.formats",
    "engine.gguf.dequant",
    "engine.gguf.codebooks",
}

APP_LAYERS = (("core", "strings", "theme"), ("backend",), ("models",), ("views",))
APP_RANK = {name: rank for rank, names in enumerate(APP_LAYERS) for name in names}
APP_OUTSIDE = {"main", "__main__"}

READS_ENVIRONMENT = {"engine/paths.py", "app/core/paths.py"}
PYTHON_LINES = 500
CPP_LINES = 500
CPP_TOTAL = 7000
TOP_LEVEL = {
    *("app", "assets", "engine", "installers", "tests"),
    *("CONTRIBUTING.md", "LICENSE", "README.md", "pyproject.toml"),
}
# Built from halves, or this file would name what it forbids.
REGISTRY_HOSTS = ("pypi" + ".org", "pythonhosted" + ".org", "deb.debian" + ".org", "npmjs" + ".org")
MACHINE_PATH = re.compile(r"(?<![\w.~$}/-])/(?:work|farm|root|home/\w+|Users/\w+)/\w")


@functools.cache
def committed() -> tuple[str, ...]:
    """Every file that git tracks, as a path from the top of the checkout."""
    out = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    names = out.stdout.decode().split("\0")
    return tuple(name for name in names if name and (ROOT / name).is_file())


def sources(*folders: str, suffixes: tuple[str, ...] = (".py",)) -> list[str]:
    starts = tuple(f"{folder}/" for folder in folders)
    return [name for name in committed() if name.startswith(starts) and name.endswith(suffixes)]


@functools.cache
def tree(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text(encoding="utf-8"), filename=name)


def module(name: str) -> str:
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@functools.cache
def modules() -> frozenset[str]:
    return frozenset(module(name) for name in sources("engine", "app"))


@functools.cache
def imports(name: str) -> tuple[tuple[str, int], ...]:
    """The modules that a file imports anywhere, with the line of each."""
    found = []
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}:{node.lineno} imports relatively"
            for alias in node.names:
                deeper = f"{node.module}.{alias.name}"
                found.append((deeper if deeper in modules() else str(node.module), node.lineno))
    return tuple(found)


def inside(package: str) -> Iterator[tuple[str, str, str]]:
    """(file:line, part of the importing module, imported module) for imports within a package."""
    for name in sources(package):
        for target, line in imports(name):
            if target.startswith(f"{package}."):
                yield f"{name}:{line}", module(name).split(".")[1], target


def test_engine_imports_only_point_left() -> None:
    wrong = []
    for where, part, target in inside("engine"):
        other = target.split(".")[1]
        if part in OUTSIDE:
            continue
        assert part in RANK, f"{where}: which layer is engine.{part}?"
        if other in OUTSIDE or RANK[other] > RANK[part]:
            wrong.append(f"{where} {part} imports {target}")
    assert not wrong, "\n".join(wrong)


def test_kernels_know_blocks_only() -> None:
    wrong = [
        f"{where} imports {target}"
        for where, part, target in inside("engine")
        if part == "kernels"
        and target not in KERNELS_MAY_USE
        and not target.startswith("engine.kernels")
    ]
    assert not wrong, "\n".join(wrong)


def test_app_imports_only_point_left() -> None:
    wrong = []
    for where, part, target in inside("app"):
        other = target.split(".")[1]
        if part in APP_OUTSIDE:
            continue
        assert part in APP_RANK, f"{where}: which layer is app.{part}?"
        if other in APP_OUTSIDE or APP_RANK[other] > APP_RANK[part]:
            wrong.append(f"{where} {part} imports {target}")
    assert not wrong, "\n".join(wrong)


def test_no_import_cycles() -> None:
    graph = {
        module(name): {target for target, _ in imports(name) if target in modules()}
        for name in sources("engine", "app")
    }
    done: set[str] = set()

    def visit(node: str, path: tuple[str, ...]) -> None:
        assert node not in path, " imports ".join((*path[path.index(node) :], node))
        if node not in done:
            for target in sorted(graph[node]):
                visit(target, (*path, node))
            done.add(node)

    for node in sorted(graph):
        visit(node, ())


def test_app_uses_one_engine_module() -> None:
    wrong = [
        f"{name}:{line} imports {target}"
        for name in sources("app")
        for target, line in imports(name)
        if target.split(".")[0] == "engine" and target != "engine.protocol"
    ]
    assert not wrong, "\n".join(wrong)


def test_protocol_is_standard_library_only() -> None:
    foreign = {
        target
        for target, _ in imports("engine/protocol.py")
        if target.split(".")[0] not in sys.stdlib_module_names
    }
    assert not foreign


def test_core_has_no_widgets() -> None:
    wrong = [
        f"{name}:{line} imports {target}"
        for name in sources("app/core")
        for target, line in imports(name)
        if target.startswith(("PySide6.QtWidgets", "PySide6.QtGui"))
    ]
    assert not wrong, "\n".join(wrong)


def test_app_loads_without_torch_and_engine() -> None:
    """A fresh interpreter imports every module of the window."""
    names = [name for name in sorted(modules()) if name.split(".")[0] == "app"]
    code = (
        "import importlib, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "engine = {m for m in sys.modules if m.startswith('engine.')} - {'engine.protocol'}\n"
        "print(sorted(engine | ({'torch', 'transformers'} & set(sys.modules))))\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, encoding="utf-8", check=False
    )
    assert out.returncode == 0, out.stderr
    assert out.stdout.strip() == "[]"


def test_environment_is_read_in_one_place_per_package() -> None:
    wrong = []
    for name in sources("engine", "app"):
        for node in ast.walk(tree(name)):
            reads = (
                isinstance(node, ast.Attribute)
                and node.attr in ("environ", "environb", "getenv")
                and isinstance(node.value, ast.Name)
                and node.value.id == "os"
            ) or (
                isinstance(node, ast.ImportFrom)
                and node.module == "os"
                and any(alias.name in ("environ", "environb", "getenv") for alias in node.names)
            )
            if reads and name not in READS_ENVIRONMENT:
                wrong.append(f"{name}:{node.lineno}")  # type: ignore[attr-defined]
    assert not wrong, f"put it into one of {READS_ENVIRONMENT}: {wrong}"


def is_broad(handler: ast.ExceptHandler) -> bool:
    """Catches everything, and does not hand it on."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    broad = any(
        kind is None or (isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException"))
        for kind in kinds
    )
    last = handler.body[-1]
    return broad and not (isinstance(last, ast.Raise) and last.exc is None)


def test_broad_excepts_say_why() -> None:
    """A comment on the line, or on the next one, tells why everything is caught."""
    wrong = []
    for name in sources("engine", "app", "installers"):
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.ExceptHandler) and is_broad(node):
                beside, below = lines[node.lineno - 1].partition("#")[2], lines[node.lineno]
                if len(beside.split()) < 3 and not below.strip().startswith("#"):
                    wrong.append(f"{name}:{node.lineno}")
    assert not wrong, "\n".join(wrong)


def test_app_does_not_print() -> None:
    wrong = [
        f"{name}:{node.lineno}"
        for name in sources("app")
        for node in ast.walk(tree(name))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]
    assert not wrong, "\n".join(wrong)


def test_package_files_hold_no_code() -> None:
    """Importing a leaf must cost nothing."""
    wrong = []
    for name in sources("engine", "app", "tests"):
        if name.endswith("__init__.py"):
            body = tree(name).body
            docstring = [node for node in body if isinstance(node, ast.Expr)]
            if body != docstring[:1]:
                wrong.append(name)
    assert not wrong, "\n".join(wrong)


def lines_of(name: str) -> int:
    return (ROOT / name).read_bytes().count(b"\n")


def test_file_sizes() -> None:
    """A file that outgrows its limit holds more than one thing."""
    python = {name: lines_of(name) for name in sources("engine", "app", "installers", "tests")}
    cpp = {name: lines_of(name) for name in sources("engine", suffixes=(".cpp", ".h"))}
    long = {name: lines for name, lines in python.items() if lines > PYTHON_LINES}
    long |= {name: lines for name, lines in cpp.items() if lines > CPP_LINES}
    assert not long
    assert sum(cpp.values()) < CPP_TOTAL


def readme_tree() -> list[str]:
    """The paths in the README's tree, in its order."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"## The tree\n.*?```\n(.*?)```", readme, re.DOTALL)
    assert block, "README.md has no section `The tree` with a fenced block"
    paths, parents = [], []
    for line in block.group(1).splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        name, _, text = line.strip().partition(" ")
        assert text.strip(), f"README's tree says nothing about {name}"
        parents = [*parents[:depth], name]
        paths.append("".join(parents))
    return paths


def test_readme_tree_is_true() -> None:
    listed = readme_tree()
    assert len(listed) == len(set(listed)), "README's tree lists a file twice"
    gone = [path for path in listed if not (ROOT / path).exists()]
    assert not gone, f"in README's tree, not on the disk: {gone}"
    endings = (".py", ".pyi", ".cpp", ".h", "CMakeLists.txt")
    code = sources("engine", "app", "installers", suffixes=endings)
    missing = [name for name in code if name not in listed and not name.endswith("__init__.py")]
    # Tests mirror the sources and assets are many: one line per folder is enough for them.
    files = sources("tests", "assets", suffixes=("",))
    folders = {"/".join(name.split("/")[:2]) + "/" for name in files if name.count("/") > 1}
    missing += sorted(folders - set(listed))
    assert not missing, f"not in README's tree: {missing}"


def test_top_level_is_closed() -> None:
    top = {name.split("/")[0] for name in committed()}
    assert {name for name in top if not name.startswith(".")} <= TOP_LEVEL


def test_no_hosts_of_registries_and_no_paths_of_one_machine() -> None:
    wrong = []
    for name in committed():
        data = (ROOT / name).read_bytes()
        if b"\0" in data[:8192]:
            continue
        for number, line in enumerate(data.decode("utf-8", errors="replace").splitlines(), 1):
            if any(host in line for host in REGISTRY_HOSTS) or MACHINE_PATH.search(line):
                wrong.append(f"{name}:{number}: {line.strip()[:80]}")
    assert not wrong, "\n".join(wrong)
