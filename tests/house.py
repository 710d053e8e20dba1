"""What the house rules look at: the project's files, and findings in one parsed file.

Every finding is a line "path:line what", so that an assertion's message is the list of things to mend.
"""

import ast
import gc
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parent.parent
FOLDERS_NOT_OURS = {"__pycache__", "build", "dist", "node_modules"}
VAGUE_NAMES = re.compile(r"^(utils?|helpers?|commons?|managers?|handlers?|base|misc)$")
MACHINE_PATHS = re.compile(r"(?<![\w.~-])/(?:work|root|tmp|home|Users)/\w")
# Words of our own for what the field has a word for (ADR 66): a process is no life, a crash loop no storm.
BANNED_WORDS = re.compile(
    r"\b(?:life|lives|doubt(?:s|ed|ful)?|ow(?:e|es|ed)|storms?|calm|afresh|knock(?:s|ing)?|doors?|brought|set aside|let in"
    r"|turned out|can not|under way|given up|at work|figures|is told)\b",
    re.IGNORECASE,
)
REGISTRY_HOSTS = re.compile(
    r"pypi\.org|pythonhosted\.org|npmjs\.(?:org|com)|\bghcr\.io|\bdocker\.io|index-url[ =]+http"
)
MOCK_MODULES = re.compile(r"^(unittest\.mock|mock|pytest_mock)(\.|$)")
MOCK_NAMES = {"monkeypatch", "mocker", "MagicMock", "AsyncMock"}
SKIP_NAMES = {"skip", "skipif", "skipIf", "skipUnless", "xfail", "importorskip"}
# Calls that wait no longer than a number of seconds, by the last part of their name: where that number stands, and its keyword.
# Beside them every `timeout=` is one. Less than a second is a pause, no limit.
LIMITS = {
    "timeout": (0, "delay"), "within": (0, "seconds"), "wait_for": (1, "timeout"), "until": (1, "within_s"), "poll": (1, "within_s"),
    "read_until": (2, "within_s"), "join": (0, "timeout"), "wait": (0, "timeout"),
}  # fmt: skip
LIMIT_ARGUMENTS = {"timeout", "within_s"}
SHORTEST_LIMIT_S = 1.0
# `pytest.mark.timeout` ends what hangs: it is no wait for a condition.
NO_LIMITS = {"pytest.mark.timeout"}
# What every floor may import of the package: values and names. Beside them rows know the store's interface.
GROUND = {"__version__", "errors", "ids", "model", "pauses"}
STORE = "store.interface"
# The rooms of the package, and who may import what acts in one; all others use a room's rules and rows.
ROOMS = {"commands", "inbox", "lifecycle", "operator", "outbox", "people", "sessions", "turns"}
USERS_OF_ROOMS = ROOMS | {"app", "cli", "testing"}
CHANCE_MODULES = {"random", "secrets", "uuid"}
CHANCE_NAMES = {"os.urandom", "uuid.uuid1", "uuid.uuid4"}

Node = TypeVar("Node", bound=ast.AST)
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
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def functions(self) -> list[Function]:
        return [node for node in self.nodes if isinstance(node, Function)]

    @cached_property
    def calls(self) -> list[tuple[str, ast.Call]]:
        """Every call, with the dotted name of what is called; without one the name is empty."""
        return [(dotted(node.func), node) for node in self.all(ast.Call)]

    def all(self, kind: type[Node]) -> list[Node]:
        """Every node of a kind."""
        return [node for node in self.nodes if isinstance(node, kind)]

    def at(self, node: ast.expr | ast.stmt | ast.arg, what: str) -> str:
        return f"{self.path}:{node.lineno} {what}"


Rule = Callable[[Source], list[str]]


@dataclass
class HouseRule:
    """What must not be found in the Python files of some folders, except in files with a reason (a prefix may name many)."""

    name: str
    finds: Rule
    folders: Sequence[str]
    reasons: dict[str, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def broken_in(self, source: Source) -> list[str]:
        """The findings in a file that has no reason."""
        if not source.path.startswith(tuple(f"{folder}/" for folder in self.folders)):
            return []
        found = self.finds(source)
        reasons = {path for path in self.reasons if source.path.startswith(path)}
        self.used |= reasons if found else set()
        return [] if reasons else found

    @property
    def unused(self) -> list[str]:
        """The reasons that no file needed so far."""
        return [path for path in self.reasons if path not in self.used]


def dotted(node: ast.expr) -> str:
    """`a.b.c` as text; what follows a call or an index begins with a dot."""
    if isinstance(node, ast.Name):
        return node.id
    return f"{dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ""


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


def sources(*folders: str) -> Iterator[Source]:
    """The Python files below these folders, one after the other: parsing them all takes seconds, and keeping them much memory."""
    prefixes = tuple(f"{folder}/" for folder in folders)
    paths = [path for path in project_files() if path.endswith(".py") and path.startswith(prefixes)]
    return (Source(path, (ROOT / path).read_text(encoding="utf-8")) for path in paths)


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
    sized = [(node, sum(isinstance(child, Function) for child in node.body)) for node in source.all(ast.ClassDef)]
    return [source.at(node, f"{node.name} has {methods} methods") for node, methods in sized if methods > limit]


def long_files(source: Source, limit: int) -> list[str]:
    lines = source.text.count("\n")
    return [f"{source.path} has {lines} lines"] if lines > limit else []


def missing_docstring(source: Source) -> list[str]:
    silent = bool(source.tree.body) and not ast.get_docstring(source.tree)
    return [f"{source.path} has no module docstring"] if silent else []


def vague_names(source: Source) -> list[str]:
    parts = [part.removesuffix(".py") for part in Path(source.path).parts]
    return [f"{source.path}: name it after what it is responsible for"] if any(map(VAGUE_NAMES.match, parts)) else []


def late_imports(source: Source) -> list[str]:
    """Imports inside functions: they hide cycles and errors."""
    return [
        source.at(node, f"imports inside {function.name}")
        for function in source.functions
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]


def floor_of(module: str) -> str:
    """On which floor of its room a module of the package is: rules, rows, or what acts; empty outside the rooms."""
    parts = module.split(".")[1:]
    if "rules" in parts:
        return "rules"
    if "rows" in parts:
        return "rows"
    return "acts" if parts[:1] and parts[0] in ROOMS else ""


def upward_imports(source: Source) -> list[str]:
    """Rules import rules and ground, rows also rows and the store's interface; only rooms and what is above them import what
    acts in a room.
    """
    module = source.path.removeprefix("src/").removesuffix(".py").replace("/", ".")
    imported = [(node, f"{node.module}.{name.name}") for node in source.all(ast.ImportFrom) for name in node.names]
    ours = [(node, name) for node, name in imported if name.startswith("everturn.")]
    return [source.at(node, f"imports {name}") for node, name in ours if not may_import(module, name)]


def may_import(module: str, name: str) -> bool:
    """Whether a module of the package may import a name of another one."""
    own, other = floor_of(module), floor_of(name)
    if own in {"rules", "rows"}:
        ground = GROUND | ({STORE} if own == "rows" else set())
        below = {"rules"} if own == "rules" else {"rules", "rows"}
        return other in below or any(f"{name}.".startswith(f"everturn.{each}.") for each in ground)
    return other != "acts" or module.split(".")[1] in USERS_OF_ROOMS


def full_folders(paths: Sequence[str], limit: int) -> list[str]:
    """Folders with more Python files than a reader can keep in mind."""
    folders = Counter(path.rpartition("/")[0] for path in paths if not path.endswith("/__init__.py"))
    return [f"{folder} has {count} files" for folder, count in sorted(folders.items()) if count > limit]


def shared_class_names(sources: Iterable[Source]) -> list[str]:
    """Names that more than one class of a module's top level has: nobody can search for them."""
    places: dict[str, list[str]] = {}
    for source in sources:
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(f"{source.path}:{node.lineno}")
    return [f"{name}: {', '.join(where)}" for name, where in sorted(places.items()) if len(where) > 1]


@dataclass(frozen=True)
class Defined:
    """What a file of the package defines: at the top of a module by its full name, or a method by its own."""

    where: str
    name: str = ""
    method: str = ""
    in_itself: int = 0


def dead_names(sources: Iterable[Source]) -> list[str]:
    """What the package defines and nothing names, or only itself. What has a decorator is registered by it, and a method of a
    class with a base of another package is called from there.
    """
    named: set[str] = set()
    read: Counter[str] = Counter()
    defined: list[Defined] = []
    for source in sources:
        module, local = module_of(source.path), imports_of(source)
        attributes = [node for node in source.all(ast.Attribute) if isinstance(node.ctx, ast.Load)]
        read.update(node.attr for node in attributes)
        named |= {*local.values(), *(f"{local.get(dotted(node.value))}.{node.attr}" for node in attributes)}
        inside = names_read(source.tree)
        for node in source.tree.body:
            own = names_read(node)
            named |= {f"{module}.{name}" for name in names_of(node) if inside[name] > own[name]}
            if source.path.startswith("src/"):
                defined += [Defined(source.at(node, name), f"{module}.{name}") for name in names_of(node)]
                defined += methods_of(source, node, local) if isinstance(node, ast.ClassDef) else []
    return [
        f"{each.where} is named nowhere"
        for each in defined
        if (read[each.method] <= each.in_itself if each.method else each.name not in named)
    ]


def module_of(path: str) -> str:
    return path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imports_of(source: Source) -> dict[str, str]:
    """What each imported name of a file stands for."""
    whole = [name for node in source.all(ast.Import) for name in node.names]
    direct = {name.name.partition(".")[0]: name.name.partition(".")[0] for name in whole if not name.asname}
    direct |= {name.asname or name.name: name.name for name in whole}
    named = [(name, node.module) for node in source.all(ast.ImportFrom) for name in node.names]
    return direct | {name.asname or name.name: f"{module}.{name.name}" for name, module in named}


def names_read(node: ast.AST) -> Counter[str]:
    """How often each plain name is read."""
    return Counter(each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load))


def names_of(node: ast.stmt) -> list[str]:
    """The names that a statement at the top of a module defines, but for what a decorator registers."""
    if isinstance(node, Function | ast.ClassDef):
        found = [] if isinstance(node, Function) and node.decorator_list else [node.name]
    else:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        found = [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
    return [name for name in found if not name.startswith("__")]


def methods_of(source: Source, node: ast.ClassDef, local: dict[str, str]) -> list[Defined]:
    """The methods of a class that only the package can call."""
    bases = [local.get(dotted(base).partition(".")[0], "everturn").partition(".")[0] for base in node.bases]
    if not {"everturn", "typing", "enum", "msgspec"}.issuperset(bases):
        return []
    methods = [each for each in node.body if isinstance(each, Function) and not each.name.startswith("__")]
    return [
        Defined(
            source.at(method, f"{node.name}.{method.name}"),
            method=method.name,
            in_itself=sum(isinstance(each, ast.Attribute) and each.attr == method.name for each in ast.walk(method)),
        )
        for method in methods
    ]


def private_uses(source: Source) -> list[str]:
    """Private names of others: `thing._name` unless it is the class's own, and `from x import _name`."""
    found = [source.at(node, f"uses {node.attr}") for node in source.all(ast.Attribute) if is_foreign_private(node)]
    names = [(node, name.name) for node in source.all(ast.ImportFrom) for name in node.names]
    return found + [source.at(node, f"imports {name}") for node, name in names if is_private(name)]


def is_private(name: str) -> bool:
    """`os._exit` is public: it is documented, its underscore only warns."""
    return name.startswith("_") and not name.startswith("__") and name != "_exit"


def is_foreign_private(node: ast.Attribute) -> bool:
    return is_private(node.attr) and not (isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"})


def mocks(source: Source) -> list[str]:
    modules: list[tuple[ast.stmt, str]] = [(node, node.module or "") for node in source.all(ast.ImportFrom)]
    modules += [(node, name.name) for node in source.all(ast.Import) for name in node.names]
    found = [source.at(node, f"imports {module}") for node, module in modules if MOCK_MODULES.match(module)]
    arguments = [node for node in source.all(ast.arg) if node.arg in MOCK_NAMES]
    return found + [source.at(node, f"asks for {node.arg}") for node in arguments]


def skips(source: Source) -> list[str]:
    named = [node for node in source.all(ast.Attribute) if node.attr in SKIP_NAMES and is_test_library(node.value)]
    return [source.at(node, f"uses {node.attr}") for node in named]


def is_test_library(node: ast.expr) -> bool:
    return dotted(node) in {"pytest", "pytest.mark", "mark", "unittest"}


def sleeps(source: Source) -> list[str]:
    """Calls of `sleep` with anything but 0, which only lets others run."""
    named = [node for name, node in source.calls if name in {"time.sleep", "asyncio.sleep", "sleep"}]
    return [source.at(node, "sleeps") for node in named if [ast.unparse(value) for value in node.args] != ["0"]]


def fixed_limits(source: Source) -> list[str]:
    """Time limits that are plain numbers: EVERTURN_TEST_PATIENCE must stretch every one, so each is made of `WAIT_S`."""
    numbers = plain_numbers(source.tree)
    given = [(limit, name) for name, call in source.calls if name not in NO_LIMITS for limit in limits_of(name, call)]
    given += [(value, function.name) for function in source.functions for value in limits_by_default(function)]
    return [
        source.at(
            limit, f"{name.rpartition('.')[2]} has the limit {ast.unparse(limit)}: make it of tests.waiting.WAIT_S"
        )
        for limit, name in given
        if number_of(limit, numbers) >= SHORTEST_LIMIT_S
    ]


def limits_of(name: str, call: ast.Call) -> list[ast.expr]:
    """What a call says about how long it waits."""
    place, keyword = LIMITS.get(name.rpartition(".")[2], (len(call.args), "timeout"))
    named = [each.value for each in call.keywords if each.arg in {"timeout", keyword}]
    return [*call.args[place : place + 1], *named]


def limits_by_default(function: Function) -> list[ast.expr]:
    """How long a function waits when nobody says anything else."""
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    pairs: list[tuple[ast.arg, ast.expr | None]] = list(
        zip(positional[len(positional) - len(given.defaults) :], given.defaults, strict=True)
    )
    pairs += zip(given.kwonlyargs, given.kw_defaults, strict=True)
    return [value for argument, value in pairs if value is not None and argument.arg in LIMIT_ARGUMENTS]


def plain_numbers(tree: ast.Module) -> dict[str, float]:
    """The names at the top of a file that stand for plain numbers."""
    assigned = [(node, number_of(node.value, {})) for node in tree.body if isinstance(node, ast.Assign)]
    names = [(target, number) for node, number in assigned for target in node.targets if number]
    return {target.id: number for target, number in names if isinstance(target, ast.Name)}


def number_of(node: ast.expr, numbers: dict[str, float]) -> float:
    """What an expression is that is made of numbers alone; 0 for every other one."""
    if isinstance(node, ast.Constant):
        return float(node.value) if isinstance(node.value, int | float) else 0.0
    if isinstance(node, ast.BinOp):
        left, right = number_of(node.left, numbers), number_of(node.right, numbers)
        return max(left, right) if left and right else 0.0
    return numbers.get(node.id, 0.0) if isinstance(node, ast.Name) else 0.0


def chance(source: Source) -> list[str]:
    """What differs from run to run: random numbers without a seed, and secrets."""
    modules = {name.asname or name.name for node in source.all(ast.Import) for name in node.names} & CHANCE_MODULES
    found = [source.at(node, f"calls {name}") for name, node in source.calls if draws_lots(name, node, modules)]
    names = [(node, f"{node.module}.{name.name}") for node in source.all(ast.ImportFrom) for name in node.names]
    return found + [source.at(node, f"imports {name}") for node, name in names if is_chance(name)]


def draws_lots(name: str, call: ast.Call, modules: set[str]) -> bool:
    """Whether this call says something else in each run. A local variable may be named as a module is."""
    if name in {"Random", "random.Random"}:
        return not call.args
    return is_chance(name) and (name.partition(".")[0] in modules or name == "os.urandom")


def is_chance(name: str) -> bool:
    module, _, what = name.rpartition(".")
    return name in CHANCE_NAMES or module == "secrets" or (module == "random" and what != "Random")


def lines_matching(pattern: re.Pattern[str], path: str, text: str) -> list[str]:
    lines = enumerate(text.splitlines(), start=1)
    return [f"{path}:{number} has {match[0]}" for number, line in lines if (match := pattern.search(line))]
