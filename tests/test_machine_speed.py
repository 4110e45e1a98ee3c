"""A bound of processor time is one of the reference machine."""

from machine_speed import REFERENCE_SECONDS, MachineSpeed, measure


def test_seconds_of_a_machine_of_half_the_speed_count_half() -> None:
    durations = iter([1.5 * REFERENCE_SECONDS, 2.5 * REFERENCE_SECONDS])
    speed = MachineSpeed(lambda: next(durations), tests_between=3)
    for _ in range(5):
        speed.count_test()
    assert speed.in_reference_seconds(300) == 150


def test_a_measurement_is_the_time_of_a_computation() -> None:
    assert 0.1 * REFERENCE_SECONDS < min(measure() for _ in range(3)) < 10 * REFERENCE_SECONDS
