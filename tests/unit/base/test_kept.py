"""Results are kept by the object they were made of, whatever it holds."""

from stepsim.base.kept import kept, kept_beside


def test_the_same_object_is_asked_about_once_and_an_equal_one_again() -> None:
    asked: list[tuple[list[int], int]] = []

    @kept(2)
    def total(numbers: list[int], more: int) -> int:
        asked.append((numbers, more))
        return sum(numbers) + more

    first, equal = [1, 2], [1, 2]
    assert [total(first, 3), total(first, 3), total(first, 4), total(equal, 3)] == [6, 6, 7, 6]
    assert asked == [(first, 3), (first, 4), (equal, 3)]
    assert asked[2][0] is equal


def test_only_the_last_results_are_kept() -> None:
    calls: list[str] = []

    @kept(1)
    def length(text: str) -> int:
        calls.append(text)
        return len(text)

    assert [length("a"), length("bc"), length("a")] == [1, 2, 1]
    assert calls == ["a", "bc", "a"]


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
