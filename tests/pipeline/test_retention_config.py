"""What is wrong in a retention policy is told with file, line and key: a bad one deletes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldtrail.config import load_text
from coldtrail.errors import ConfigError


def bad_budgets() -> dict[str, tuple[str, int, str, str]]:
    """What is no size, for each key that is one."""
    bad = {
        '""': "KiB",
        '"0"': "KiB",
        '"0B"': "zero",
        '"-1"': "KiB",
        '"5"': "KiB",
        '"5gb"': "KiB",
        '"5 GiB"': "KiB",
        "0": "string",
        "-1": "string",
    }
    keys = ("max_total", "min_free", "project_floor")
    return {
        f"{key} = {value}": (f"retention.{key} = {value}\n", 1, f"retention.{key}", word) for key in keys for value, word in bad.items()
    }


# The text, the line and the key of the error, and a word that its message or hint must have.
WRONG = {
    **bad_budgets(),
    "grace of nothing": ('retention.grace = ""\n', 1, "retention.grace", "span of time"),
    "never as grace": ('retention.grace = "never"\n', 1, "retention.grace", "span of time"),
    "a hold of nothing": ('retention.restored_hold = "0d"\n', 1, "retention.restored_hold", "zero"),
    "a budget that is unknown": ('[retention]\nmax_totel = "5GiB"\n', 2, "retention.max_totel", "did you mean max_total?"),
    "a key of a rule among the budgets": ("[retention]\nkeep_last = 5\n", 2, "retention.keep_last", "known here"),
    "a floor above the budget": (
        '[retention]\nmax_total = "1GiB"\nproject_floor = "2GiB"\n',
        3,
        "retention.project_floor",
        "max_total for all, 1GiB",
    ),
    "no share": ('retention.most_per_pass = "0%"\n', 1, "retention.most_per_pass", "1% to 100%"),
    "more than the whole": ('retention.most_per_pass = "101%"\n', 1, "retention.most_per_pass", "1% to 100%"),
    "a share of minus one": ('retention.most_per_pass = "-1%"\n', 1, "retention.most_per_pass", "1% to 100%"),
    "a share that is a number": ("retention.most_per_pass = 20\n", 1, "retention.most_per_pass", "20%"),
    "a share without a sign": ('retention.most_per_pass = "20"\n', 1, "retention.most_per_pass", "1% to 100%"),
    "a share with a fraction": ('retention.most_per_pass = "0.2%"\n', 1, "retention.most_per_pass", "1% to 100%"),
    "no version": ("retention.companion_versions = 0\n", 1, "retention.companion_versions", 'write "all"'),
    "minus one version": ("retention.companion_versions = -1\n", 1, "retention.companion_versions", 'write "all"'),
    "versions of nothing": ('retention.companion_versions = ""\n', 1, "retention.companion_versions", 'write "all"'),
    "true versions": ("retention.companion_versions = true\n", 1, "retention.companion_versions", "whole number"),
    "a rule that keeps nothing": ('[retention]\n[[retention.rule]]\nagent = "codex"\n', 2, "retention.rule", "keep_within"),
    "an empty rule": ("[retention]\n\n[[retention.rule]]\n", 3, "retention.rule", "all that it is about would expire"),
    "a rule that keeps pins alone": ("[[retention.rule]]\nkeep_pinned = true\n", 1, "retention.rule", "pins always hold"),
    "a rule that keeps no pins": (
        "[[retention.rule]]\nkeep_last = 1\nkeep_pinned = false\n",
        3,
        "retention.rule.keep_pinned",
        "always holds",
    ),
    "a rule that keeps none": ("[[retention.rule]]\nkeep_last = 0\n", 2, "retention.rule.keep_last", "from 1"),
    "a rule that keeps minus one": ("[[retention.rule]]\nkeep_daily = -1\n", 2, "retention.rule.keep_daily", "from 1"),
    "a rule that keeps half": ("[[retention.rule]]\nkeep_weekly = 0.5\n", 2, "retention.rule.keep_weekly", "whole number"),
    "a rule that keeps text": ('[[retention.rule]]\nkeep_monthly = "3"\n', 2, "retention.rule.keep_monthly", "whole number"),
    "a rule of a year in the wrong case": (
        '[[retention.rule]]\nkeep_within = "1Y"\n',
        2,
        "retention.rule.keep_within",
        "ms, s, m, h, d, w, y",
    ),
    "a rule of no time": ('[[retention.rule]]\nkeep_within = "0d"\n', 2, "retention.rule.keep_within", "zero"),
    "a rule of time that is a number": ("[[retention.rule]]\nkeep_within = 90\n", 2, "retention.rule.keep_within", "string"),
    "the second rule": ("[[retention.rule]]\nkeep_last = 5\n[[retention.rule]]\nkeep_last = 0\n", 4, "retention.rule.keep_last", "from 1"),
    "a rule of an unknown agent": ('[[retention.rule]]\nagent = "x"\n', 2, "retention.rule.agent", "codex"),
    "a rule of an unknown state": ('[[retention.rule]]\nstate = "lve"\n', 2, "retention.rule.state", "did you mean live?"),
    "a rule of no tag": ('[[retention.rule]]\ntag = ""\n', 2, "retention.rule.tag", "empty"),
    "a rule of no project": ('[[retention.rule]]\nproject = ""\n', 2, "retention.rule.project", "empty"),
    "a rule of no size": ('[[retention.rule]]\nlarger_than = "0B"\n', 2, "retention.rule.larger_than", "zero"),
    "reclaim after nothing": ('reclaim.after = ""\n', 1, "reclaim.after", 'write "never"'),
    "reclaim after a year in the wrong case": ('reclaim.after = "1Y"\n', 1, "reclaim.after", 'write "never"'),
    "reclaim without waiting": ('reclaim.wait = "0s"\n', 1, "reclaim.wait", "zero"),
    "reclaim that always waits": ('reclaim.wait = "never"\n', 1, "reclaim.wait", "span of time"),
}


@pytest.mark.parametrize(("text", "line", "key", "word"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_told_with_file_line_and_key(text: str, line: int, key: str, word: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_text(text, file="some.toml", user_home=Path("/me"))
    error = caught.value
    assert (error.file, error.line, error.key) == ("some.toml", line, key)
    assert word in f"{error} {error.hint}"
    assert str(error).startswith(f"some.toml:{line}: {key}: ")
