"""The house keeps its rules: who may know whom, how large a room gets, what the library never does."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]
ROOTS = (REPO / "pipeline", REPO / "daemon")
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 70

# Who stands above whom: imports run down, or along a floor, never up. A room is a module, or a folder with all that is in it.
FLOORS = {
    "coldtrail": (
        (1, "errors model units"),
        (2, "config layout durable reserve retention state facts moments filesource format holders liveness"),
        (3, "agents"),
        (4, "journal steady catalog sums store archive plain home settings indexer indexes checkpoints sessions sweeps"),
        (5, "stage content recover lineage recovery lookback choice tail uncaptured"),
        (6, "writer follow recovered session client"),
    ),
    "coldtraild": (
        (7, "log health marks notify heartbeat supervised units watch runs schedule control pace metrics alarm"),
        (8, "jobs keeping capturing report reporter chores requests"),
        (9, "daemon service"),
        (10, "cli __main__"),
    ),
}
FACES = {"coldtrail": 6, "coldtraild": 10}  # the packages themselves

# The one room through which each package that is not ours, and each part of the standard library worth a door, comes in.
DOORS = {
    "orjson": "coldtrail.format.lines",
    "zstandard": "coldtrail.format.frames",
    "tomllib": "coldtrail.format.toml",
    "sqlite3": "coldtrail.catalog",
    "click": "coldtraild.cli",
    "rich": "coldtraild.cli",
    "apscheduler": "coldtraild.schedule",
    "watchdog": "coldtraild.watch",
}

# What the library leaves to its caller. `settings` asks for the surroundings once, `client` passes them down and waits;
# nobody makes threads.
SURROUNDINGS = {
    "os.environ", "os.getenv", "os.getcwd", "pathlib.Path.home", "pathlib.Path.cwd", "os.path.expanduser",
    "time.time", "time.time_ns", "time.localtime", "time.monotonic", "time.sleep",
    "datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today",
}  # fmt: skip
NEVER = {
    "threading.Thread", "threading.Timer", "_thread.start_new_thread", "print", "input", "sys.exit", "os._exit",
    "concurrent.futures.ThreadPoolExecutor", "concurrent.futures.ProcessPoolExecutor", "multiprocessing.Process", "os.fork",
    "logging.getLogger", "warnings.warn",
}  # fmt: skip

BROAD = {"Exception", "BaseException"}

FACE = {
    "open", "Trail", "Session", "Recovered", "Event", "EventType", "Gap", "Position", "Writer", "Appended",
    "ColdtrailError", "UsageError", "ConfigError", "NotFoundError", "AmbiguousError", "RefusedError", "LockedError",
    "ConflictError", "UnverifiableError", "CorruptionError", "SourceError", "StoreFullError",
}  # fmt: skip


@dataclass(frozen=True)
class Module:
    """One file of ours, by the name that it is imported by."""

    name: str
    path: Path

    @property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, str(self.path))

    @property
    def package(self) -> str:
        """What a relative import in this module starts from."""
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]

    def __str__(self) -> str:
        return self.name


@cache
def modules() -> tuple[Module, ...]:
    """Every module of the library and the service."""
    found = []
    for root in ROOTS:
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found.append(Module(".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return tuple(found)


def library() -> list[Module]:
    return [module for module in modules() if module.name.partition(".")[0] == "coldtrail"]


def python_files() -> list[Path]:
    return [module.path for module in modules()] + sorted((REPO / "tests").rglob("*.py"))


def written_files() -> list[Path]:
    """Every text that we write, code and prose."""
    named = [path for name in ("*.md", "*.toml", "Makefile", ".ci/*", "config/*", "systemd/*", "pipeline/*.md") for path in REPO.glob(name)]
    return [path for path in sorted(set(named)) + python_files() if path.is_file() and path != Path(__file__)]


def short(path: Path) -> str:
    return str(path.relative_to(REPO))


each_module = pytest.mark.parametrize("module", modules(), ids=str)
each_room = pytest.mark.parametrize("module", library(), ids=str)
each_python_file = pytest.mark.parametrize("path", python_files(), ids=short)


def imports(module: Module) -> Iterator[tuple[str, int]]:
    """Every module that this one imports, wherever in the file, with the line."""
    ours = {other.name for other in modules()}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = module.package.split(".")[: len(module.package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                deeper = f"{origin}.{alias.name}"
                yield (deeper if deeper in ours else origin), node.lineno


def floor(name: str) -> int | None:
    """On which floor a module of ours stands; None: on none that is known."""
    package, _, rest = name.partition(".")
    if not rest:
        return FACES.get(package)
    room = rest.partition(".")[0]
    return next((number for number, rooms in FLOORS.get(package, ()) if room in rooms.split()), None)


def is_ours(name: str) -> bool:
    return name.partition(".")[0] in FLOORS


@each_module
def test_imports_run_down_only(module: Module) -> None:
    standing = floor(module.name)
    assert standing is not None, f"{module} has no floor: give it one in FLOORS, and in the map of the house"
    upward = [f"line {line}: {name}" for name, line in imports(module) if is_ours(name) and (floor(name) or 0) > standing]
    assert not upward, f"{module} stands on floor {standing} and imports from above"


def test_no_modules_import_each_other_in_a_circle() -> None:
    names = {module.name for module in modules()}
    below = {module.name: {name for name, _ in imports(module) if name in names and name != module.name} for module in modules()}
    while free := {name for name, known in below.items() if not known}:
        below = {name: known - free for name, known in below.items() if name not in free}
    assert not below, "each of these modules is in a circle, or imports one that is"


@each_module
def test_each_outside_package_enters_by_its_one_door(module: Module) -> None:
    for name, line in imports(module):
        package = name.partition(".")[0]
        if package in DOORS:
            door = DOORS[package]
            assert module.name == door or module.name.startswith(door + "."), f"line {line}: {package} enters by {door}"
        elif not is_ours(name):
            assert package in sys.stdlib_module_names, f"line {line}: {package} has no door"


@each_python_file
def test_a_file_has_at_most_400_lines(path: Path) -> None:
    assert path.read_bytes().count(b"\n") <= MAX_FILE_LINES


@each_python_file
def test_a_function_has_at_most_70_lines(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= MAX_FUNCTION_LINES, f"{node.name} has {lines} lines"


@each_python_file
def test_a_module_opens_with_one_line_that_says_what_it_is_for(path: Path) -> None:
    said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    assert said.partition("\n")[0].endswith("."), "the first line is no sentence"


@each_python_file
def test_annotations_are_never_evaluated(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "from __future__ import annotations" in text or not any(
        isinstance(node, ast.FunctionDef | ast.AnnAssign | ast.ClassDef) for node in ast.walk(ast.parse(text))
    )


def test_the_roots_hold_their_packages_and_no_stray_module() -> None:
    for root in ROOTS:
        assert not list(root.glob("*.py")), f"{short(root)} is a folder on the path, and no package"


def test_the_face_defines_nothing_but_where_its_names_are_found() -> None:
    allowed = ast.Import | ast.ImportFrom | ast.Assign | ast.Expr | ast.If
    (face,) = (module for module in modules() if module.name == "coldtrail")
    defined = [node for node in face.tree.body if not isinstance(node, allowed)]
    assert [node.name for node in defined if isinstance(node, ast.FunctionDef)] == ["__getattr__"]
    assert len(defined) == 1


def test_the_exported_names_are_these_and_each_is_found() -> None:
    import coldtrail

    assert sorted(coldtrail.__all__) == sorted(FACE)
    assert [name for name in FACE if getattr(coldtrail, name).__name__ != name] == []
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = coldtrail.nothing


def test_importing_the_library_waits_for_no_room_that_is_not_asked_for() -> None:
    code = "import sys, coldtrail; print([name for name in sys.modules if name.startswith('coldtrail.')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "['coldtrail.errors']\n"


def test_importing_the_library_loads_nothing_of_the_service() -> None:
    service = ["coldtraild", "apscheduler", "watchdog", "click", "rich", "asyncio", "logging"]
    code = f"import sys, coldtrail; print([name for name in {service!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def uses(module: Module) -> Iterator[tuple[str, int]]:
    """The full name of everything that this module takes from elsewhere, as far as its text tells, with the line."""
    tree, names = module.tree, {name: name for name in ("print", "input")}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and (name := dotted(node, names)):
            yield name, node.lineno


def dotted(node: ast.expr, names: dict[str, str]) -> str | None:
    if isinstance(node, ast.Name):
        return names.get(node.id) if isinstance(node.ctx, ast.Load) else None
    if isinstance(node, ast.Attribute):
        if node.attr == "expanduser":
            return "os.path.expanduser"
        before = dotted(node.value, names)
        return f"{before}.{node.attr}" if before else None
    return None


@each_room
def test_the_library_knows_its_surroundings_from_its_caller(module: Module) -> None:
    if module.name not in ("coldtrail.settings", "coldtrail.client"):
        assert not [f"line {line}: {name}" for name, line in uses(module) if name in SURROUNDINGS]


@each_room
def test_the_library_never_prints_or_starts_a_thread(module: Module) -> None:
    assert not [f"line {line}: {name}" for name, line in uses(module) if name in NEVER]


@each_module
def test_errors_are_caught_by_name_but_for_the_job_runner(module: Module) -> None:
    if module.name == "coldtraild.jobs":
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ExceptHandler) and not passes_on(node):
            assert node.type is not None, f"line {node.lineno}: a bare except"
            assert not mentions(node.type) & BROAD, f"line {node.lineno}: says nothing of what it expects"
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
            assert not mentions(node) & BROAD, f"line {node.lineno}: says nothing of what it expects"


def passes_on(handler: ast.ExceptHandler) -> bool:
    """Whether a handler only cleans up: it ends with a bare `raise`."""
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def mentions(node: ast.expr) -> set[str]:
    return {word.id for word in ast.walk(node) if isinstance(word, ast.Name)}


@pytest.mark.parametrize("path", written_files(), ids=short)
def test_nothing_is_left_to_do_and_no_machine_is_named(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.findall(r"\b(?:TODO|FIXME|XXX)\b", text)
    assert not re.findall(r"(?<![\w~.$}/])/(?:work|workspace|builds?)/[\w.]+", text), "a path of one machine"
    if not path.is_relative_to(REPO / "tests"):
        assert not re.findall(r"(?<![\w~.$}/])/(?:home|Users|root)/[\w.]+", text), "a path of one person"
