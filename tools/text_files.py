"""The form of text files: one newline at the end, no blanks at the ends of lines, TOML that parses.

    python -m tools.text_files FILE ...

Says what is wrong and exits with 1. Used by the pre-commit hook and by tests/unit/tools.
"""

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

BLANKS_MEAN_SOMETHING = (".md", ".txt")  # a line break in Markdown; a transcript


def faults_of(path: Path, content: bytes) -> Iterator[str]:
    """What is wrong with the form of a file."""
    if content and not content.endswith(b"\n"):
        yield f"{path}: no newline at the end"
    if content.endswith(b"\n\n"):
        yield f"{path}: empty lines at the end"
    if b"\r\n" in content:
        yield f"{path}: lines that end with CR LF"
    if path.suffix not in BLANKS_MEAN_SOMETHING:
        for number, line in enumerate(content.splitlines(), start=1):
            if line.endswith((b" ", b"\t")):
                yield f"{path}:{number}: blanks at the end of the line"
    if path.suffix == ".toml":
        try:
            tomllib.loads(content.decode())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            yield f"{path}: {error}"


def main(names: list[str]) -> int:
    """The exit code: whether any of the files has a fault."""
    found = [fault for name in names for fault in faults_of(Path(name), Path(name).read_bytes())]
    for fault in found:
        print(fault, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
