"""Writes the blocking shells from the asyncio ones: `python -m tools.unasync`, `--check` compares.

The asyncio file of each pair is written by hand. Its blocking twin is the same text without
`async` and `await`, with the names below replaced, and formatted again. Code, docstrings and
comments are treated alike, so the two shells also say the same.

What really differs between the shells (how they wait, lock, and hand out a receipt to come) is
written by hand in both of them, in modules and classes whose names differ by these rules only.
"""

import re
import subprocess
import sys
from difflib import unified_diff
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = "src/oncemq"

# Each pair: the file that is written, and the one that is generated.
FILES = {
    "client": ("base", "client", "columns", "inbox_blocks", "puts", "transactions"),
    "databases": ("outbox", "work"),
}
PAIRS = {
    f"{package}/aio/{name}.py": f"{package}/blocking/{name}.py"
    for package, names in FILES.items()
    for name in names
}

# Replaced first, as they stand, across words.
PHRASES = {
    "import asyncio\n": "",
    "asyncio.Future[": "Pending[",
    "oncemq.client.aio.pending": "oncemq.client.pending",
    "recognize(into, awaitable=True)": "recognize(into, awaitable=False)",
    "on connections that are awaited.": "on connections that block.",
    "for one event loop at a time": "that threads may share",
    "is moved by the event loop": "is under a lock, moved by whichever thread waits",
}
WORDS = {
    "AbstractAsyncContextManager": "AbstractContextManager",
    "AwaitedReceipt": "Pending",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "aclosing": "closing",
    "aio": "blocking",
    "asynccontextmanager": "contextmanager",
    "asyncio": "blocking",
}


def blocking_text(text: str) -> str:
    """The same without `async` and `await`, in the blocking shell's names."""
    for phrase, other in PHRASES.items():
        text = text.replace(phrase, other)
    text = re.sub(r"\bawait awaited(?=\()", "", text)  # for what may or may not be awaitable
    text = re.sub(r"\b(?:async|await)\s+", "", text)
    text = re.sub(r"\bAwaitable\[(\w+)\]", r"\1", text)
    return re.sub(r"\w+", lambda word: _blocking_word(word[0]), text)


def _blocking_word(word: str) -> str:
    return WORDS.get(word) or re.sub(r"^Async(?=[A-Z])", "", word)


def generated(source: str, target: str) -> str:
    """The whole text of a generated file."""
    header = f"# Generated from {source} by tools/unasync.py; do not edit.\n"
    text = header + blocking_text((ROOT / PACKAGE / source).read_text("utf-8"))
    place = str(ROOT / PACKAGE / target)
    # Imports are sorted again and those that nothing uses now are dropped; generators can
    # `yield from` where async ones cannot; and lines are broken again.
    rules = ("--select", "I,F401,UP028", "--fix", "--unsafe-fixes")
    text = _ruff(text, "check", *rules, "--quiet", "--stdin-filename", place)
    return _ruff(text, "format", "--quiet", "--stdin-filename", place)


def _ruff(text: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "ruff", *arguments, "-"]
    return subprocess.run(
        command, input=text, capture_output=True, text=True, check=True, timeout=60, cwd=ROOT
    ).stdout


def main(arguments: list[str]) -> int:
    """Write the generated files, or say which of them are not in step."""
    stale = 0
    for source, target in PAIRS.items():
        path = ROOT / PACKAGE / target
        before = path.read_text("utf-8") if path.exists() else ""
        after = generated(source, target)
        if before == after:
            continue
        stale += 1
        if "--check" not in arguments:
            path.write_text(after, "utf-8")
            print(f"written: {PACKAGE}/{target}")
            continue
        print(f"{PACKAGE}/{target} is not in step with {source}: run 'make format'")
        lines = unified_diff(before.splitlines(), after.splitlines(), "it is", "it should be", n=1)
        print("\n".join(lines))
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
