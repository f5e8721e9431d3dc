"""Imports point down, and every module keeps to the style that a machine can check.

A *box* is a package or module of the layout: `pequod.engine`, `pequod.keys`, `apps`. The
table says which boxes each may import. `pequod` itself is the public face, the names in
`pequod/__init__.py`: that file may import every box below it, and only the boxes on top
import the face.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

BASE = {"pequod.errors", "pequod.keys", "pequod.digests"}
BELOW_SERVER = BASE | {
    "grammar",
    "pequod.joins",
    "pequod.engine",
    "pequod.wire",
    "pequod.client",
    "pequod.backing",
    "pequod.cluster",
    "pequod.config",
}
MAY_IMPORT = {
    "grammar": set(),
    "pequod.errors": set(),
    "pequod.keys": set(),
    "pequod.digests": {"pequod.keys"},
    "pequod.config": BASE | {"pequod.wire"},
    "pequod.joins": BASE | {"grammar"},
    "pequod.engine": BASE | {"pequod.joins"},
    "pequod.wire": BASE,
    "pequod.client": BASE | {"pequod.wire"},
    "pequod.backing": BASE,
    "pequod.cluster": BASE | {"pequod.wire", "pequod.client"},
    "pequod.server": BELOW_SERVER,
    "pequod.pipeline": BASE | {"pequod.joins", "pequod.client", "pequod.cluster"},
    "pequod.cli": BELOW_SERVER | {"pequod", "pequod.server", "pequod.pipeline"},
    "pequod.__main__": {"pequod.cli"},
    "pequod": BELOW_SERVER | {"pequod.server"},
    "apps": {"pequod", "pequod.pipeline"},
    "loadgen": {"pequod", "pequod.pipeline"},
}
TREES = ("grammar", "pequod", "apps", "loadgen", "tests")

MAX_LINES = 450
MAX_FILES_PER_LIBRARY = 2
# The pipeline is the box of these: all of it works on columns, and nothing else imports them.
OF_THE_PIPELINE = {"numpy", "pyarrow", "pyspark"}


def violations(root: Path) -> list[str]:
    """What is wrong in the checkout at `root`, a sentence each, with file and line."""
    found = []
    users = defaultdict(set)  # library -> files of pequod that import it
    for path in python_files(root):
        name = path.relative_to(root).as_posix()
        text = path.read_text("utf-8")
        tree = ast.parse(text, name)
        box = box_of_file(path.relative_to(root))
        found += [f"{name}: {problem}" for problem in style_problems(text, tree)]
        if box not in MAY_IMPORT and box != "tests":
            found.append(f"{name}: {box} is not in the table of boxes")
            continue
        for line, module in imports(tree, root):
            if module.startswith("."):
                found.append(f"{name}:{line}: the import of {module} is relative")
                continue
            top = module.partition(".")[0]
            if top in TREES:
                target = box_of_module(module)
                if box not in ("tests", target) and target not in MAY_IMPORT[box]:
                    found.append(f"{name}:{line}: {box} may not import {target}")
            elif box == "pequod.pipeline" and top in OF_THE_PIPELINE:
                continue
            elif top not in sys.stdlib_module_names and name.startswith("pequod/"):
                users[top].add(name)
    for library, files in sorted(users.items()):
        if len(files) > MAX_FILES_PER_LIBRARY:
            found.append(f"{library} is imported in {len(files)} files: {', '.join(sorted(files))}")
    return found


def python_files(root: Path) -> list[Path]:
    return sorted(path for tree in TREES for path in (root / tree).rglob("*.py"))


def box_of_file(path: Path) -> str:
    """The box that a file, named from the root, belongs to.

    >>> box_of_file(Path("pequod/engine/store.py")), box_of_file(Path("pequod/__init__.py"))
    ('pequod.engine', 'pequod')
    """
    parts = path.with_suffix("").parts
    return box_of_module(".".join(part for part in parts if part != "__init__"))


def box_of_module(module: str) -> str:
    """The box that a module belongs to.

    >>> box_of_module("pequod.engine.store"), box_of_module("apps.twip"), box_of_module("pequod")
    ('pequod.engine', 'apps', 'pequod')
    """
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "pequod" else parts[0]


def imports(tree: ast.Module, root: Path) -> Iterator[tuple[int, str]]:
    """Line and module of every import, also those inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield node.lineno, "." * node.level + (node.module or "")
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield node.lineno, whole if is_module(whole, root) else node.module


def is_module(name: str, root: Path) -> bool:
    path = root.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def style_problems(text: str, tree: ast.Module) -> Iterator[str]:
    if tree.body and not ast.get_docstring(tree):
        yield "the module does not open with a docstring"
    lines = len(text.splitlines())
    if lines > MAX_LINES:
        yield f"{lines} lines, more than {MAX_LINES}"


def test_the_tree_keeps_the_rules():
    assert violations(ROOT) == []


def test_the_tree_is_really_read():
    files = {path.relative_to(ROOT).as_posix() for path in python_files(ROOT)}
    assert {"pequod/keys.py", "grammar/__init__.py", "apps/twip/__main__.py"} <= files
    tree = ast.parse((ROOT / "pequod" / "keys.py").read_text("utf-8"))
    assert "typing" in {module for _, module in imports(tree, ROOT)}


def test_the_table_points_down():
    TopologicalSorter(MAY_IMPORT).prepare()  # raises if a box can reach itself


def plant(root: Path, files: dict[str, str]) -> list[str]:
    """The violations in a small tree that holds just these files, docstrings added."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'"""A module."""\n{text}\n', "utf-8")
    return violations(root)


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("pequod/keys.py", "import pequod.errors", "2: pequod.keys may not import pequod.errors"),
        ("pequod/engine/a.py", "from pequod import Cache", "pequod.engine may not import pequod"),
        ("pequod/engine/a.py", "import pequod.server.tcp", "may not import pequod.server"),
        ("pequod/engine/a.py", "from pequod import wire", "may not import pequod.wire"),
        ("pequod/engine/a.py", "import grammar", "may not import grammar"),
        ("pequod/joins/a.py", "from pequod.engine.b import C", "may not import pequod.engine"),
        ("pequod/joins/a.py", "def f():\n    import pequod.engine", "3: pequod.joins may not"),
        ("pequod/server/a.py", "import pequod.pipeline", "may not import pequod.pipeline"),
        ("pequod/joins/a.py", "import apps", "may not import apps"),
        ("pequod/joins/a.py", "from tests import oracle", "may not import tests"),
        ("pequod/__init__.py", "import loadgen", "pequod may not import loadgen"),
        ("apps/twip/a.py", "from pequod.engine.cache import Cache", "apps may not import"),
        ("loadgen/a.py", "import apps.twip", "loadgen may not import apps"),
        ("pequod/engine/a.py", "from . import b", "the import of . is relative"),
        ("tests/a.py", "from .oracle import b", "the import of .oracle is relative"),
        ("pequod/misc.py", "", "pequod.misc is not in the table of boxes"),
        ("pequod/extra/a.py", "", "pequod.extra is not in the table of boxes"),
        ("pequod/keys.py", "\n" * MAX_LINES, "452 lines, more than 450"),
    ],
)
def test_a_violation_is_found(tmp_path, name, text, problem):
    (tmp_path / "pequod").mkdir()
    (tmp_path / "pequod" / "wire.py").write_text('"""A module."""\n')
    found = plant(tmp_path, {name: text})
    assert len(found) == 1, found
    assert found[0].startswith(name)
    assert problem in found[0]


def test_a_missing_docstring_is_found(tmp_path):
    (tmp_path / "grammar").mkdir()
    (tmp_path / "grammar" / "__init__.py").write_text("ONE = 1\n")
    assert violations(tmp_path) == [
        "grammar/__init__.py: the module does not open with a docstring"
    ]


def test_a_library_in_three_files_is_found(tmp_path):
    files = {f"pequod/engine/{name}.py": "from lark import Lark" for name in "abc"}
    assert plant(tmp_path, files) == [
        "lark is imported in 3 files: pequod/engine/a.py, pequod/engine/b.py, pequod/engine/c.py"
    ]


def test_what_is_allowed_passes(tmp_path):
    files = {
        "pequod/__init__.py": "import pequod.engine.cache\nfrom pequod.keys import prefix",
        "pequod/engine/__init__.py": "",
        "pequod/engine/cache.py": "import time\nfrom pequod.engine.store import Store",
        "pequod/engine/store.py": "from pequod import keys\nfrom lark import Lark",
        "pequod/joins/parser.py": "from grammar import CACHEJOIN\nimport lark",
        "pequod/keys.py": "from typing import NamedTuple",
        "pequod/cli.py": "import pequod\nimport pequod.server",
        "apps/twip/__main__.py": "from pequod import Cache, prefix\nfrom apps.twip import JOINS",
        "tests/test_a.py": "import pequod.engine.store\nimport apps.twip",
    }
    assert plant(tmp_path, files) == []
