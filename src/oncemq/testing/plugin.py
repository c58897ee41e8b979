"""The pytest plugin: a real server for each test, faults on request, and the checker.

It is found by pytest through the entry point `oncemq`; nothing of OnceMQ is imported until a
test asks for a fixture. See docs/TESTING_YOUR_CODE.md.
"""

import zlib
from collections.abc import Callable, Generator
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from oncemq import Client
    from oncemq.testing.chaos import Chaos

_SHOWN = pytest.StashKey["Chaos"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The seed of all chaos."""
    group = parser.getgroup("oncemq", "OnceMQ")
    group.addoption(
        "--oncemq-seed",
        type=int,
        metavar="N",
        help="draw the faults of oncemq_chaos from this seed (default: one of each test's own)",
    )


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say it when it is not the usual one."""
    seed = config.getoption("--oncemq-seed")
    return None if seed is None else f"oncemq: seed {seed}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """What was injected, and from which seed, beside a failure."""
    report = yield
    chaos = item.stash.get(_SHOWN, None)
    if chaos is not None and report.failed:
        report.sections.append(
            ("OnceMQ chaos", f"{chaos!r}; the same again: --oncemq-seed {chaos.seed}")
        )
    return report


@pytest.fixture
def oncemq_chaos(request: pytest.FixtureRequest) -> "Chaos":
    """The faults of this test's server: all off until a knob is turned."""
    from oncemq.testing.chaos import Chaos

    given: int | None = request.config.getoption("--oncemq-seed")
    seed = zlib.crc32(request.node.nodeid.encode()) if given is None else given
    chaos = request.node.stash[_SHOWN] = Chaos(seed)
    return chaos


@pytest.fixture
def oncemq_server(
    oncemq_chaos: "Chaos",
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Generator[str]:
    """The address of a real server in this process, for this test alone.

    Clients with an id keep their state in a directory of this test, not in the user's; programs
    that the test starts find the server by ONCEMQ_SERVER.
    """
    from oncemq.testing.embedded import chaotic_server

    directory = tmp_path_factory.mktemp("oncemq")
    monkeypatch.setenv("XDG_STATE_HOME", str(directory / "state"))
    with chaotic_server(directory / "data", oncemq_chaos) as address:
        monkeypatch.setenv("ONCEMQ_SERVER", address)
        yield address
        oncemq_chaos.calm()  # whoever says goodbye after the test is not hurt any more


@pytest.fixture
def oncemq_client(oncemq_server: str) -> "Generator[Callable[..., Client]]":
    """`oncemq_client(id="billing")`: clients of this test's server, closed when it ends."""
    from oncemq import Client

    with ExitStack() as clients:

        def connect(**options: Any) -> Client:
            return clients.enter_context(Client(oncemq_server, **options))

        yield connect


@pytest.fixture
def oncemq_audit(oncemq_server: str) -> "Callable[..., None]":
    """`oncemq_audit("orders", effects={"billing": ids}, receipts=receipts)`: the checker.

    Raises an AssertionError that names each broken promise; see `oncemq.testing.audit`.
    """
    from oncemq.testing.auditing import audit

    return partial(audit, oncemq_server)
