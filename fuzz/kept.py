"""The kept inputs: one a line, in hex, so that they are few files and a change can be read.

`corpus/<target>.txt` must pass. `found/<target>.txt` names the exception first: found, reported,
not mended yet. When it is mended, the line moves to the corpus.
"""

from pathlib import Path

HERE = Path(__file__).parent


def corpus(target: str) -> list[bytes]:
    """The inputs a target must return from."""
    return [bytes.fromhex(line) for line in _lines("corpus", target)]


def found(target: str) -> list[tuple[str, bytes]]:
    """Inputs a target does not return from yet, each with the name of what it raises."""
    pairs = [line.split() for line in _lines("found", target)]
    return [(name, bytes.fromhex(data)) for name, data in pairs]


def keep(target: str, inputs: list[bytes]) -> Path:
    """Write the corpus of a target anew."""
    path = HERE / "corpus" / f"{target}.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{data.hex()}\n" for data in sorted(inputs, key=_order)))
    return path


def _order(data: bytes) -> tuple[int, bytes]:
    return len(data), data


def _lines(folder: str, target: str) -> list[str]:
    path = HERE / folder / f"{target}.txt"
    return [line for line in path.read_text().splitlines() if line] if path.exists() else []
