"""What may befall any server, alone or in a cluster: as a step says."""

from typing import Any

from simulator.clock import MICROSECOND, MILLISECOND, Clock
from simulator.machines.machine import trap_of
from simulator.schedule.cast import WorldStep
from simulator.servers.server_lifecycle import ServerLives

NO_LIMIT = 1 << 39


def befall(lives: ServerLives[Any], step: WorldStep, clock: Clock, usual_sync_us: int) -> bool:
    """Do it; False: it is nothing that befalls a server."""
    args = step.args
    match step.do:
        case "cut_server":
            lives.cut(str(args["mode"]), int(args["down_ms"]))
        case "kill_server":
            lives.kill(int(args["down_ms"]))
        case "trap_server":
            lives.set_trap(trap_of(args))
        case "fail_sync":
            lives.fail_sync(int(args["down_ms"]))
        case "slow_disk":
            pace, usual = lives.pace, usual_sync_us * MICROSECOND
            pace.sync = int(args["sync_ms"]) * MILLISECOND
            clock.after(int(args["for_ms"]) * MILLISECOND, lambda: setattr(pace, "sync", usual))
        case "fill_disk":
            lives.fill(int(args["spare"]))
            clock.after(int(args["for_ms"]) * MILLISECOND, lambda: lives.fill(NO_LIMIT))
        case "set_clock":
            lives.pace.skew_micros += int(args["ms"]) * 1000
        case _:
            return False
    return True
