"""Placeholder."""


class NoiseModel: ...


class NoiseResult: ...


def simulate_noise() -> None:
    """Nothing yet."""
