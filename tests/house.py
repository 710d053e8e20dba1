"""What the house rules look at: the project's files, and findings in one parsed file.

Every finding is a line "path:line what", so that an assertion's message is the list of things to mend.
"""

import ast
import gc
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS_NOT_OURS = {"__pycache__", "build", "dist", "node_modules"}
VAGUE_NAMES = re.compile(r"^(utils?|helpers?|commons?|managers?|handlers?|base|misc)$")
MACHINE_PATHS = re.compile(r"(?<![\w.~-])/(?:work|root|tmp|home|Users)/\w")
REGISTRY_HOSTS = re.compile(
    r"pypi\.org|pythonhosted\.org|npmjs\.(?:org|com)|\bghcr\.io|\bdocker\.io|index-url[ =]+http"
)
MOCK_MODULES = re.compile(r"^(unittest\.mock|mock|pytest_mock)(\.|$)")
MOCK_NAMES = {"monkeypatch", "mocker", "MagicMock", "AsyncMock"}
SKIP_NAMES = {"skip", "skipif", "skipIf", "skipUnless", "xfail", "importorskip"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """One Python file: its path below the project's root, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        # Rubbish collected in the middle of parsing may log a traceback, which is parsed, too: CPython up to 3.11.7 then
        # fails with "AST constructor recursion depth mismatch".
        gc.disable()
        try:
            return ast.parse(self.text, self.path)
        finally:
            gc.enable()

    @cached_property
    def functions(self) -> list[Function]:
        return [node for node in ast.walk(self.tree) if isinstance(node, Function)]

    def at(self, node: ast.expr | ast.stmt | ast.arg, what: str) -> str:
        return f"{self.path}:{node.lineno} {what}"


Rule = Callable[[Source], list[str]]


def text_files() -> Iterator[tuple[str, str]]:
    """Every text file of the project, tracked or about to be."""
    for path in project_files():
        try:
            yield path, (ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def project_files() -> list[str]:
    """What git would commit; without git, every file outside hidden and generated folders."""
    if (ROOT / ".git").exists():
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
        return sorted(path for path in listed if path and (ROOT / path).is_file())
    paths = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
    return sorted(path.as_posix() for path in paths if not is_foreign(path))


def is_foreign(path: Path) -> bool:
    return any(part in FOLDERS_NOT_OURS or part.startswith(".") for part in path.parts[:-1] if part != ".ci")


def sources(*folders: str) -> list[Source]:
    """The Python files below these folders."""
    prefixes = tuple(f"{folder}/" for folder in folders)
    paths = [path for path in project_files() if path.endswith(".py") and path.startswith(prefixes)]
    return [Source(path, (ROOT / path).read_text(encoding="utf-8")) for path in paths]


def length(function: Function) -> int:
    """Lines from `def` to the last one, docstring included."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def long_functions(source: Source, limit: int, prefix: str = "") -> list[str]:
    return [
        source.at(function, f"{function.name} has {length(function)} lines")
        for function in source.functions
        if function.name.startswith(prefix) and length(function) > limit
    ]


def big_classes(source: Source, limit: int) -> list[str]:
    classes = [node for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef)]
    sized = [(node, sum(isinstance(child, Function) for child in node.body)) for node in classes]
    return [source.at(node, f"{node.name} has {methods} methods") for node, methods in sized if methods > limit]


def long_files(source: Source, limit: int) -> list[str]:
    lines = source.text.count("\n")
    return [f"{source.path} has {lines} lines"] if lines > limit else []


def missing_docstring(source: Source) -> list[str]:
    silent = bool(source.tree.body) and not ast.get_docstring(source.tree)
    return [f"{source.path} has no module docstring"] if silent else []


def vague_names(path: str) -> list[str]:
    parts = [part.removesuffix(".py") for part in Path(path).parts]
    return [f"{path}: name it after what it is responsible for"] if any(map(VAGUE_NAMES.match, parts)) else []


def late_imports(source: Source) -> list[str]:
    """Imports inside functions: they hide cycles and errors."""
    return [
        source.at(node, f"imports inside {function.name}")
        for function in source.functions
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]


def private_uses(source: Source) -> list[str]:
    """Private names of others: `thing._name` unless it is the class's own, and `from x import _name`."""
    found = [source.at(node, f"uses {node.attr}") for node in attributes(source) if is_foreign_private(node)]
    names = [(node, name.name) for node in imports_from(source) for name in node.names]
    return found + [source.at(node, f"imports {name}") for node, name in names if is_private(name)]


def attributes(source: Source) -> list[ast.Attribute]:
    return [node for node in ast.walk(source.tree) if isinstance(node, ast.Attribute)]


def imports_from(source: Source) -> list[ast.ImportFrom]:
    return [node for node in ast.walk(source.tree) if isinstance(node, ast.ImportFrom)]


def is_private(name: str) -> bool:
    """`os._exit` is public: it is documented, its underscore only warns."""
    return name.startswith("_") and not name.startswith("__") and name != "_exit"


def is_foreign_private(node: ast.Attribute) -> bool:
    return is_private(node.attr) and not (isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"})


def mocks(source: Source) -> list[str]:
    plain = [node for node in ast.walk(source.tree) if isinstance(node, ast.Import)]
    modules: list[tuple[ast.stmt, str]] = [(node, node.module or "") for node in imports_from(source)]
    modules += [(node, name.name) for node in plain for name in node.names]
    found = [source.at(node, f"imports {module}") for node, module in modules if MOCK_MODULES.match(module)]
    arguments = [node for node in ast.walk(source.tree) if isinstance(node, ast.arg) and node.arg in MOCK_NAMES]
    return found + [source.at(node, f"asks for {node.arg}") for node in arguments]


def skips(source: Source) -> list[str]:
    named = [node for node in attributes(source) if node.attr in SKIP_NAMES and is_test_library(node.value)]
    return [source.at(node, f"uses {node.attr}") for node in named]


def is_test_library(node: ast.expr) -> bool:
    return ast.unparse(node) in {"pytest", "pytest.mark", "mark", "unittest"}


def sleeps(source: Source) -> list[str]:
    """Calls of `sleep` with anything but 0, which only lets others run."""
    calls = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call)]
    named = [node for node in calls if ast.unparse(node.func) in {"time.sleep", "asyncio.sleep", "sleep"}]
    return [source.at(node, "sleeps") for node in named if [ast.unparse(value) for value in node.args] != ["0"]]


def lines_matching(pattern: re.Pattern[str], path: str, text: str) -> list[str]:
    lines = enumerate(text.splitlines(), start=1)
    return [f"{path}:{number} has {match[0]}" for number, line in lines if (match := pattern.search(line))]
