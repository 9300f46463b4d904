"""The calibration of benchmarks: one disturbed pass of its loop must not flatter every ratio."""

from __future__ import annotations

from itertools import count

from dray.simulation.benchmarks.allocator_timing import LOOP_PIECES, MIN_CALIBRATIONS, Calibration


def test_a_disturbed_pass_does_not_count_once_the_calibration_is_finished():
    """The clock of the first pass runs ten times as fast as that of the others."""
    ticks = count()

    def clock():
        tick = next(ticks)
        return tick * (10.0 if tick < 2 * LOOP_PIECES else 1.0)

    calibration = Calibration(clock)
    calibration.run()
    disturbed = calibration.seconds
    calibration.finish()
    assert calibration.seconds * 10 == disturbed
    assert next(ticks) == 2 * LOOP_PIECES * MIN_CALIBRATIONS
