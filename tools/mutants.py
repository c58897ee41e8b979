"""Every way to break one place of a source file: a condition, a statement, a number, a sync.

Law: a mutant is one changed stretch of text. Nothing is changed that no test could notice: texts,
annotations, log lines, assertions, imports.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

AREAS = {
    "protocol": ("protocol",),
    "broker": ("broker",),
    "session": ("session",),
    "audit": ("audit",),
    "wire": ("wire",),
    "zmtp": ("zmtp",),
    "transport": (
        "transport/connecting",
        "transport/serving",
        "transport/dealer.py",
        "transport/feed_publisher.py",
        "transport/feed_subscriber.py",
        "transport/router.py",
        "transport/tcp_options.py",
        "transport/wakeup.py",
    ),  # not the baseline, which shows what libzmq does
    "storage": ("storage",),
    "server": ("server",),
    "client": ("client",),
    "inbox": ("databases/inbox.py", "databases/statements.py"),
    "relay": ("relay",),
    "sink": (
        "spark/sink/arrow_to_batch.py",
        "spark/sink/publishing.py",
        "spark/options/writer.py",
        "spark/sink/staging.py",
        "spark/sink/writers.py",
    ),
}
SYNCS = frozenset({"sync", "sync_directory", "fsync", "fdatasync", "replace_file"})
LOGGING = frozenset({"debug", "info", "warning", "error", "exception", "log"})
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}


class Mutant(NamedTuple):
    """One change: the file, where it stands in it, and the text that comes there instead."""

    path: str
    line: int
    column: int
    start: int  # bytes into the file
    end: int
    text: str
    what: str
    statement: int  # the line on which the statement begins that it is part of
    on_loading: bool  # in no function: it runs when the module is imported

    @property
    def name(self) -> str:
        """As a report names it."""
        return f"{self.path}:{self.line}:{self.column} {self.what}"

    def applied(self, source: bytes) -> bytes:
        """The file with this change."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def files_of(package: Path, areas: tuple[str, ...]) -> list[Path]:
    """The files of these areas, sorted; any folder of the package is one, too."""
    found: set[Path] = set()
    for area in areas:
        for place in AREAS.get(area, (area,)):
            path = package / place
            found |= set(path.rglob("*.py")) if path.is_dir() else {path}
    return sorted(found)


def area_of(mutant: Mutant) -> str:
    """The area that its file is of; empty: of none."""
    inside = mutant.path.removeprefix("src/oncemq/")
    return next((area for area, places in AREAS.items() if inside.startswith(places)), "")


def mutants_of(path: Path, root: Path, *, syncs: bool) -> list[Mutant]:
    """Every mutant of a file; only those that leave out a sync, if so asked."""
    source = path.read_bytes()
    finder = _Finder(source, str(path.relative_to(root)), syncs=syncs)
    finder.visit(ast.parse(source))
    return finder.found


class _Finder(ast.NodeVisitor):
    """Walks over a module and notes what can be broken."""

    def __init__(self, source: bytes, path: str, *, syncs: bool) -> None:
        self._path = path
        self._syncs = syncs
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._source = source
        self._statement = 1
        self._functions = 0  # around the node that is visited
        self.found: list[Mutant] = []

    def visit(self, node: ast.AST) -> None:
        """A node, and those inside it, unless nothing in it can be noticed."""
        if isinstance(node, ast.Assert | ast.Import | ast.ImportFrom | ast.AnnAssign):
            return
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.FunctionDef) and node.name in ("__repr__", "__str__"):
            return
        if isinstance(node, ast.Expr) and (_is_text(node.value) or _is_log(node.value)):
            return
        if isinstance(node, ast.stmt):
            self._statement = node.lineno
        self.found += self._syncs_of(node) if self._syncs else self._changes_of(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = not isinstance(node, ast.ClassDef)
            self._functions += inner
            for child in node.body:  # neither decorators nor annotations nor defaults
                self.visit(child)
            self._functions -= inner
        elif not isinstance(node, ast.Raise):  # its words are not looked at
            self.generic_visit(node)

    def _syncs_of(self, node: ast.AST) -> Iterator[Mutant]:
        if not isinstance(node, ast.Expr):
            return
        if _called(node.value) in SYNCS or "PRAGMA synchronous" in self._text(node.value):
            yield self._instead(node, "pass", "no sync")

    def _changes_of(self, node: ast.AST) -> Iterator[Mutant]:
        match node:
            case ast.If() | ast.While() if not isinstance(node.test, ast.Constant):
                yield self._instead(node.test, f"(not ({self._text(node.test)}))", "negated")
            case ast.Expr() if not isinstance(node.value, ast.Yield | ast.YieldFrom | ast.Await):
                yield self._instead(node, "pass", "statement left out")
            case ast.AugAssign() | ast.Delete() | ast.Raise() | ast.Continue() | ast.Break():
                yield self._instead(node, "pass", "statement left out")
            case ast.Assign() if isinstance(node.targets[0], ast.Attribute | ast.Subscript):
                yield self._instead(node, "pass", "assignment left out")
            case ast.Return(value=ast.Constant(value=bool(answer))):
                yield self._instead(node, f"return {not answer}", "answer negated")
            case ast.Compare() if len(node.ops) == 1:
                left, right = self._text(node.left), self._text(node.comparators[0])
                other = COMPARISONS[type(node.ops[0])]
                yield self._instead(node, f"({left} {other} {right})", f"comparison {other}")
            case ast.BoolOp():
                word = " or " if isinstance(node.op, ast.And) else " and "
                values = word.join(f"({self._text(each)})" for each in node.values)
                yield self._instead(node, f"({values})", f"{word.strip()} instead")
            case ast.UnaryOp(op=ast.Not()):
                yield self._instead(node, f"({self._text(node.operand)})", "not left out")
            case ast.BinOp(op=ast.Add() | ast.Sub()):
                left, right = self._text(node.left), self._text(node.right)
                word = "-" if isinstance(node.op, ast.Add) else "+"
                if '"' not in left + right:
                    yield self._instead(node, f"({left} {word} {right})", f"{word} instead")
            case ast.Constant(value=int(number)) if type(number) is int:
                yield self._instead(node, str(number + 1), f"{number} is one more")
            case _:
                pass

    def _text(self, node: ast.expr) -> str:
        start, end = self._place(node)
        return self._source[start:end].decode()

    def _place(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._starts[node.lineno - 1] + node.col_offset
        return start, self._starts[node.end_lineno - 1] + node.end_col_offset

    def _instead(self, node: ast.expr | ast.stmt, text: str, what: str) -> Mutant:
        start, end = self._place(node)
        return Mutant(
            self._path, node.lineno, node.col_offset + 1, start, end, text, what,
            statement=self._statement, on_loading=not self._functions,
        )  # fmt: skip


def _is_text(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant)


def _called(value: ast.expr) -> str:
    if not isinstance(value, ast.Call):
        return ""
    function = value.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _is_log(value: ast.expr) -> bool:
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return False
    holder = value.func.value
    name = holder.attr if isinstance(holder, ast.Attribute) else getattr(holder, "id", "")
    return value.func.attr in LOGGING and "log" in name
