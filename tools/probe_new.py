"""Ask the program of now the cases of `tests/equal`: where it is asked otherwise stands here."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from equal import print_answers
from probe_old import answers

import stepsim


def answers_now(case: dict[str, Any], folder: Path) -> Iterator[tuple[str, int]]:
    """What a case gives: folding is no option, and others are values of two."""
    options = dict(case["options"])
    options.pop("fold_ranks", None)
    if skew := options.pop("expert_skew", None):
        options["expert_load"] = f"skew:{skew}"
    options.pop("expert_seed", None)  # no case has a load that is drawn
    if sms := options.pop("comm_sms", None):
        options["overlap_cost"] = str(sms)
    if skews := options.get("axes", {}).get("expert_skew"):
        options["axes"] = {"expert_load": [f"skew:{each}" for each in skews]}
    return answers({**case, "options": options}, folder)


if __name__ == "__main__":
    print_answers(answers_now, stepsim.StepsimError)
