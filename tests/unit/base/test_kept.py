"""Results are kept by the object they were made of, whatever it holds."""

from stepsim.base.kept import kept_beside


def test_what_is_kept_beside_an_object_goes_with_it() -> None:
    class Owner:
        pass

    made: list[int] = []

    @kept_beside
    def tripled(owner: Owner, number: int) -> tuple[int, ...]:
        made.append(number)
        return (number,) * 3

    owner = Owner()
    first = tripled(owner, 4)
    assert tripled(owner, 4) is first
    assert tripled(owner, 5) == (5, 5, 5)
    del owner
    other = Owner()
    assert tripled(other, 4) == first
    assert made == [4, 5, 4]
