"""The server's clock: the wall's time, never back, never still."""

from oncemq.server.clock import SteadyClock


class Times:
    """A wall clock that can be set, and a steady one."""

    def __init__(self) -> None:
        self.wall = 1_000_000
        self.steady = 50
        self.clock = SteadyClock(lambda: self.wall, lambda: self.steady)

    def after(self, micros: int, *, set_by: int = 0) -> int:
        self.wall += micros + set_by
        self.steady += micros
        return self.clock()


def test_it_tells_the_time_of_the_wall() -> None:
    times = Times()
    assert [times.after(0), times.after(7), times.after(1_000)] == [1_000_000, 1_000_007, 1_001_007]


def test_set_forward_it_follows() -> None:
    assert Times().after(10, set_by=3_600) == 1_003_610


def test_set_back_it_goes_on_at_half_speed_until_the_wall_has_caught_up() -> None:
    times = Times()
    assert times.after(10, set_by=-100) == 1_000_005
    assert times.after(10) == 1_000_010
    assert times.after(1) == 1_000_010
    assert times.after(1) == 1_000_011  # halves are not lost
    assert times.after(1_000) == 1_000_922  # the wall's time again
    assert times.after(1) == 1_000_923
