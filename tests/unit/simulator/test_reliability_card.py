"""The reliability card says what was run, and that something was not run."""

from pathlib import Path

import msgspec
import pytest

from simulator import proof, reliability_card
from simulator.proof import Proof

GUARANTEES = """
| | promise | holds when | does not cover | shown by |
|---|---|---|---|---|
| G1 durable | It is synced. | Always. | A lying disk. | `tests/x` |
"""


def a_proof(name: str, failures: int = 0, **counts: float) -> Proof:
    return Proof(name, f"make {name}", "2030-01-02T03:04:05+00:00", "abc", counts, failures, {})


def the_row(text: str, what: str) -> list[str]:
    (row,) = [line for line in text.splitlines() if line.startswith(f"| {what} |")]
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_a_record_is_read_back_with_its_commit_and_date(tmp_path: Path) -> None:
    path = proof.record(
        "crash-log", "make test", {"recoveries": 7}, worst={"kill -9": 0.5}, directory=tmp_path
    )
    (found,) = proof.load(tmp_path)
    assert path == tmp_path / "crash-log.json"
    assert (found.name, found.command, found.counts) == (
        "crash-log",
        "make test",
        {"recoveries": 7},
    )
    assert (found.failures, found.worst) == (0, {"kill -9": 0.5})
    assert found.when.endswith("+00:00")
    assert found.commit


def test_a_second_run_replaces_the_first(tmp_path: Path) -> None:
    proof.record("power", "make test", {"cuts": 1}, directory=tmp_path)
    proof.record("power", "make test", {"cuts": 2}, directory=tmp_path)
    assert [each.counts for each in proof.load(tmp_path)] == [{"cuts": 2}]
    assert [path.name for path in tmp_path.iterdir()] == ["power.json"]


@pytest.mark.parametrize("name", ["", "../x", "Crash", "a b", "a/b"])
def test_a_campaign_has_a_plain_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="is named like"):
        proof.record(name, "make test", {}, directory=tmp_path)


def test_a_damaged_result_is_an_error_and_not_a_missing_one(tmp_path: Path) -> None:
    proof.record("power", "make test", {"cuts": 1}, directory=tmp_path)
    (tmp_path / "kills.json").write_text('{"name": "kills"}')
    with pytest.raises(msgspec.ValidationError):
        proof.load(tmp_path)


def test_a_number_without_a_result_is_not_run_and_has_its_command() -> None:
    text = reliability_card.numbers([])
    lines = [line for line in reliability_card.LINES if line.command == "make test"]
    assert {the_row(text, line.what)[1] for line in lines} == {"not run"}
    assert all(the_row(text, line.what)[3] == "`make test`" for line in lines)


def test_what_only_its_own_command_runs_is_named_when_nobody_ran_it() -> None:
    assert "soak" not in reliability_card.numbers([])
    assert reliability_card.unasked([]) == [
        "Not part of `make test`, and not run: `make fuzz`, `make soak`."
    ]
    soak = a_proof("soak", minutes=5, messages=7)
    assert the_row(reliability_card.numbers([soak]), "minutes of soak")[1] == "5"
    assert reliability_card.unasked([soak]) == [
        "Not part of `make test`, and not run: `make fuzz`."
    ]


def test_a_campaign_records_what_it_counted_and_whether_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof, "DIRECTORY", tmp_path)
    with proof.campaign("kills-server") as tally:
        tally.add("kills", 2)
        tally.fault("kill -9", 2)
        tally.fault("power cut", 0)
        tally.outage("kill -9", 1.5)
        tally.outage("kill -9", 0.5)
    (good,) = proof.load(tmp_path)
    assert (good.command, good.failures) == ("make test", 0)
    assert good.counts == {"kills": 2, "fault: kill -9": 2}
    assert good.worst == {"kill -9": 1.5}

    def fails() -> None:
        with proof.campaign("kills-server") as tally:
            tally.add("kills", 1)
            raise AssertionError

    with pytest.raises(AssertionError):
        fails()
    (bad,) = proof.load(tmp_path)
    assert (bad.counts, bad.failures) == ({"kills": 1}, 1)


def test_the_results_of_a_command_are_forgotten_before_it_runs_again(tmp_path: Path) -> None:
    proof.record("kills-old", "make test", {"kills": 1}, directory=tmp_path)
    proof.record("soak", "make soak", {"minutes": 1}, directory=tmp_path)
    proof.forget("make test", tmp_path)
    assert [each.name for each in proof.load(tmp_path)] == ["soak"]
    proof.forget("make test", tmp_path / "none")


def test_counts_of_one_kind_are_added_up() -> None:
    models = [
        a_proof("model-a", held=1, models=1, planted=3, caught=3),
        a_proof("model-b", held=0, models=1, planted=4, caught=2),
    ]
    text = reliability_card.numbers([*models, a_proof("modelling", held=9, models=9)])
    assert the_row(text, "Spin models that hold")[1] == "1 of 2"
    assert the_row(text, "planted bugs caught by the models")[1] == "5 of 7"


def test_no_failure_in_n_histories_bounds_their_probability_by_3_over_n() -> None:
    text = reliability_card.numbers([a_proof("simulation", histories=6000, simulated_seconds=5400)])
    assert the_row(text, "simulated histories")[1:3] == ["6,000", "0 (p < 0.0005)"]
    assert the_row(text, "simulated hours")[1] == "1.50"
    assert the_row(text, "simulated histories")[4] == "2030-01-02, abc"


def test_several_commands_are_shown_as_the_one_that_runs_them_all() -> None:
    proofs = [
        msgspec.structs.replace(
            a_proof(f"fuzz-{name}", inputs=1), command=f"make fuzz TARGET={name}"
        )
        for name in "ab"
    ]
    assert the_row(reliability_card.numbers(proofs), "fuzzed inputs")[1:4] == [
        "2",
        "0",
        "`make fuzz`",
    ]


def test_failures_are_shown_without_a_bound_and_listed() -> None:
    text = reliability_card.card(
        [a_proof("simulation", failures=2, histories=10)], GUARANTEES, commit="abc", date="today"
    )
    assert the_row(text, "simulated histories")[2] == "**2**"
    assert "## Failures\n\n- simulation: 2" in text


def test_promises_come_with_what_they_do_not_cover() -> None:
    row = "| G1 durable | It is synced. | Always. | A lying disk. |"
    assert reliability_card.promises(GUARANTEES).splitlines()[2:] == [row]
    with pytest.raises(ValueError, match="GUARANTEES"):
        reliability_card.promises("no table")


def test_faults_that_were_never_injected_are_named() -> None:
    counts = {"fault: bit flip": 3, "fault: moon phase": 1, "cuts": 9}
    proofs = [msgspec.structs.replace(a_proof("power"), counts=counts)] * 2
    text = reliability_card.faults(proofs)
    assert the_row(text, "bit flip") == ["bit flip", "6"]
    assert the_row(text, "moon phase") == ["moon phase", "2"]
    assert "clock jump" not in text
    (never,) = reliability_card.uninjected(proofs)
    assert "clock jump" in never
    assert "bit flip" not in never
    assert reliability_card.faults([]) == "Not run."


def test_the_longest_outage_of_each_cause_is_shown() -> None:
    outages = ({"kill -9": 1.5}, {"kill -9": 0.5, "power cut": 2})
    proofs = [msgspec.structs.replace(a_proof("kills"), worst=each) for each in outages]
    text = reliability_card.worst(proofs)
    assert the_row(text, "kill -9")[1] == "1.50 s"
    assert the_row(text, "power cut")[1] == "2.00 s"
    assert reliability_card.worst([]) == "Not run."


def test_a_campaign_the_card_does_not_know_is_shown_all_the_same() -> None:
    text = reliability_card.card(
        [a_proof("new-thing", tries=4)], GUARANTEES, commit="abc", date="today"
    )
    assert "## Also run\n\n- new-thing: 4 tries" in text


def test_the_card_is_written_beside_the_guarantees(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/GUARANTEES.md").write_text(GUARANTEES)
    proof.record("power", "make test", {"cuts": 60}, directory=tmp_path / proof.DIRECTORY)
    text = reliability_card.main(tmp_path).read_text("utf-8")
    assert the_row(text, "real power cuts")[1] == "60"
    assert the_row(text, "real processes killed")[1] == "not run"
