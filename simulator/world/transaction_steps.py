"""Steps that make many things one: transactions, commits of stages, keyed puts, sinks."""

from copy import deepcopy

from simulator.actors.client import Process
from simulator.actors.sink import Sink, drive
from simulator.actors.transactions import put_under_key, stage_and_commit, transact
from simulator.history.history import History
from simulator.history.transaction_outcomes import Dealings
from simulator.schedule.cast import SINKS, WorldStep
from simulator.world.simulated_client import SimulatedClient

DEALS = ("transact", "stage", "keyed", "drive", "backup")


class Deals:
    """All of them in one world, and what they leave behind."""

    def __init__(
        self, clients: dict[str, SimulatedClient], topics: list[str], history: History
    ) -> None:
        self.dealings = Dealings()
        self.sinks = [Sink(number, topics, history) for number in range(SINKS)]
        self._clients = clients

    def begin(self, process: Process, step: WorldStep) -> None:
        """Let a process do what the step says."""
        match step.do:
            case "transact":
                self._transact(process, step)
            case "stage":
                self._stage(process, step)
            case "keyed":
                self._keyed(process, step)
            case "drive":
                self._drive(process, step)
            case _:
                sink = self.sinks[int(step.args["sink"])]
                sink.backup = deepcopy(sink.own)

    def _transact(self, process: Process, step: WorldStep) -> None:
        args = step.args
        if process.client.database is not None:
            return  # the database has the cursor
        work = transact(
            process,
            self.dealings,
            int(args["number"]),
            source=str(args["source"]),
            targets=str(args["targets"]).split("\n"),
            limit=int(args["limit"]),
            size=int(args["size"]),
            hold_ms=int(args["hold_ms"]),
            fails=bool(args["fails"]),
        )
        process.begin("get", work, wait_ms=int(args["hold_ms"]))

    def _stage(self, process: Process, step: WorldStep) -> None:
        args = step.args
        work = stage_and_commit(
            process,
            self.dealings,
            int(args["number"]),
            topic=str(args["topic"]),
            count=int(args["count"]),
            size=int(args["size"]),
            owner=str(args["owner"]),
            commit=int(args["commit"]),
            required=bool(args.get("required", False)),
        )
        process.begin("stage", work)

    def _keyed(self, process: Process, step: WorldStep) -> None:
        args = step.args
        work = put_under_key(
            process,
            int(args["number"]),
            topic=str(args["topic"]),
            count=int(args["count"]),
            size=int(args["size"]),
        )
        process.begin("put", work)

    def _drive(self, process: Process, step: WorldStep) -> None:
        args = step.args
        names = str(args["executors"]).split()
        executors = [live[-1] for name in names if (live := self._clients[name].live())]
        if executors:
            work = drive(
                process,
                self.sinks[int(args["sink"])],
                executors,
                which=str(args["which"]),
                rows=int(args["rows"]),
                tasks=int(args["tasks"]),
                speculates=bool(args["speculates"]),
                ends=str(args["ends"]),
            )
            process.begin("drive", work)
