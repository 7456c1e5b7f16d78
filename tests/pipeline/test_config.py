"""A config is read whole or refused with file, line and key; what is shown reads back as the same."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldtrail.config import (
    AGENTS,
    Archive,
    Capture,
    Checkpoint,
    Compact,
    Config,
    Reclaim,
    Retention,
    Rule,
    Source,
    load_file,
    load_text,
    show,
)
from coldtrail.errors import ConfigError
from coldtrail.model import EventType
from coldtrail.units import LARGEST_BYTES, LONGEST_MS, parse_size, parse_span, size_text, span_text

USER = Path("/me")
MINUTE = 60_000
DAY = 24 * 60 * MINUTE


def loaded(text: str, **more: Any) -> Config:
    return load_text(text, user_home=USER, **more)


# --- what is good ---


def test_an_empty_text_is_the_defaults() -> None:
    assert loaded("") == Config.defaults(user_home=USER)


def test_the_defaults_are_those_of_the_design() -> None:
    assert Config.defaults(user_home=USER) == Config(
        home=Path("/me/.local/share/coldtrail"),
        discover=True,
        sources=(),
        capture=Capture(debounce_ms=2_000, scan_every_ms=5 * MINUTE),
        checkpoint=Checkpoint(every_events=50, every_ms=5 * MINUTE, on=(EventType.TOOL_COMPLETED,)),
        compact=Compact(after_ms=DAY, level=9),
        retention=Retention(7 * DAY, None, None, None, 20, None, 14 * DAY, rules=()),
        reclaim=Reclaim(after_ms=None, wait_ms=60 * MINUTE),
    )


def test_the_home_comes_from_the_caller_else_the_text_else_xdg_else_the_users_folder() -> None:
    xdg, said = Path("/xdg"), Path("/said")
    assert loaded('home = "~/mine"', data_home=xdg, home=said).home == said
    assert loaded('home = "~/mine"', data_home=xdg).home == Path("/me/mine")
    assert loaded("", data_home=xdg).home == Path("/xdg/coldtrail")
    assert loaded("").home == Path("/me/.local/share/coldtrail")


def test_every_key_that_works_is_read() -> None:
    config = loaded("""
        home = "/kept"
        discover = false
        source = [{ name = "one", agent = "codex", root = "~/one" }]
        capture = { debounce = "250ms", scan_every = "1h" }
        checkpoint.every_events = 7
        checkpoint.every = "90s"
        checkpoint.on = ["session_end", "message_added"]
        checkpoint.least = "1KiB"
        checkpoint.cost_factor = 3
        checkpoint.replay_max = "1MiB"
        checkpoint.replay_max_records = 99
        [compact]
        after = "0s"
        level = 19
        [archive]
        url = "file:///mnt/big"
        [retention]
        grace = "2w"
        max_total = "50GiB"
        min_free = "5GB"
        project_floor = "1MiB"
        most_per_pass = "7%"
        companion_versions = 10
        restored_hold = "30d"
        [[retention.rule]]
        keep_last = 3
        [[retention.rule]]
        agent = "codex"
        project = "~/work/**"
        tag = "spike"
        state = "gone"
        larger_than = "1GiB"
        keep_within = "2y"
        keep_last = 50
        keep_daily = 7
        keep_weekly = 8
        keep_monthly = 9
        keep_pinned = true
        [reclaim]
        after = "30d"
        wait = "2h"
    """)
    assert config == Config(
        home=Path("/kept"),
        discover=False,
        sources=(Source("one", "codex", Path("/me/one")),),
        capture=Capture(debounce_ms=250, scan_every_ms=60 * MINUTE),
        checkpoint=Checkpoint(7, 90_000, (EventType.SESSION_END, EventType.MESSAGE_ADDED), 1024, 3, 1 << 20, 99),
        compact=Compact(after_ms=0, level=19),
        archive=Archive(Path("/mnt/big")),
        retention=Retention(
            14 * DAY,
            50 << 30,
            5 * 10**9,
            1 << 20,
            7,
            10,
            30 * DAY,
            (Rule(keep_last=3), Rule("codex", "/me/work/**", "spike", "gone", 1 << 30, 730 * DAY, 50, 7, 8, 9)),
        ),
        reclaim=Reclaim(30 * DAY, 120 * MINUTE),
    )


@pytest.mark.parametrize(("url", "folder"), [("", None), ("/mnt/a", "/mnt/a"), ("~/a", "/me/a"), ("~", "/me"), ("file:///a", "/a")])
def test_an_archive_may_be_any_folder(url: str, folder: str | None) -> None:
    assert loaded(f'archive.url = "{url}"').archive.folder == (Path(folder) if folder else None)


def test_what_is_off_may_be_said() -> None:
    off = 'pack.after = "never"\nreclaim.after = "never"\nretention.max_total = "never"\nservice.metrics = ""\narchive.url = ""'
    off += '\nretention.min_free = "never"\nretention.project_floor = "never"\nretention.companion_versions = "all"'
    assert loaded(off) == loaded("")


def test_the_caller_may_know_other_agents() -> None:
    text = '[[source]]\nname = "a"\nagent = "newcomer"\nroot = "/a"'
    assert loaded(text, agents=[*AGENTS, "newcomer"]).sources[0].agent == "newcomer"


def test_the_agents_of_a_config_are_those_there_are() -> None:
    from coldtrail.agents import agents

    assert sorted(AGENTS) == sorted(agents())


# --- what is wrong: the text, the line and the key of the error, and a word that its message or hint must have ---

SOURCE = '[[source]]\nname = "a"\nagent = "codex"\nroot = "~/a"\n'

WRONG = {
    "no TOML": ("discover = yes\n", 1, "", "TOML"),
    "no TOML, further down": ("\n\n[capture\n", 3, "", "TOML"),
    "ends too early": ('discover = true\nhome = """\n', 3, "", "TOML"),
    "a key twice": ("discover = true\ndiscover = true\n", 2, "", "TOML"),
    "nested too deeply": ("x = " + "[" * 5_000, None, "", "nested"),
    "an endless number": ("x = " + "9" * 5_000, 1, "", "TOML"),
    "an unknown key": ("\nhomme = 1\n", 2, "homme", "did you mean home?"),
    "an unknown section": ("discover = true\n[captures]\n", 2, "captures", "did you mean capture?"),
    "an unknown key in a section": ('[capture]\n# a word\ndebouce = "2s"\n', 3, "capture.debouce", "debounce, scan_every"),
    "an unknown key, dotted": ("capture.x = 1\n", 1, "capture.x", "known here"),
    "an unknown key, inline": ("discover = true\ncapture = { x = 1 }\n", 2, "capture.x", "known here"),
    "an unknown key of a source": (SOURCE + "rooot = 1\n", 5, "source.rooot", "did you mean root?"),
    "an unknown key of a rule": ("[[retention.rule]]\nkeep = 1\n", 2, "retention.rule.keep", "keep_last"),
    "text that looks like the key before it": (
        'home = """/x\\\n  [capture]\\\n  debounce = 1"""\n[capture]\ndebounce = 1\n',
        5,
        "capture.debounce",
        "1",
    ),
    "a value over several lines": ('discover = true\n[checkpoint]\non = [\n  "session_end",\n  "never",\n]\n', 3, "checkpoint.on", "never"),
    "CRLF": ("discover = true\r\n[capture]\r\ndebounce = 2\r\n", 3, "capture.debounce", "string"),
    "a section that is a value": ("capture = 3\n", 1, "capture", "[capture]"),
    "a section that is a list": ("[[capture]]\n", 1, "capture", "[capture]"),
    "a list that is a section": ('[source]\nname = "a"\n', 1, "source", "[[source]]"),
    "a list of no tables": ("retention.rule = [1]\n", 1, "retention.rule", "[[retention.rule]]"),
    "true as text": ('discover = "true"\n', 1, "discover", "true or false"),
    "true as a number": ("compact.level = true\n", 1, "compact.level", "whole number"),
    "a number as a span": ("[compact]\nafter = 0\n", 2, "compact.after", "string"),
    "a fraction": ("compact.level = 9.0\n", 1, "compact.level", "whole number"),
    "a level too low": ("compact.level = 0\n", 1, "compact.level", "from 1 to 19"),
    "a level too high": ("compact.level = 20\n", 1, "compact.level", "from 1 to 19"),
    "a year in the wrong case": ('capture.debounce = "1Y"\n', 1, "capture.debounce", "ms, s, m, h, d, w, y"),
    "a span of nothing": ('capture.debounce = ""\n', 1, "capture.debounce", "span of time"),
    "a span of no unit": ('capture.debounce = "2"\n', 1, "capture.debounce", "span of time"),
    "a span of minus one": ('capture.debounce = "-1"\n', 1, "capture.debounce", "span of time"),
    "a span with a fraction": ('capture.debounce = "1.5s"\n', 1, "capture.debounce", "span of time"),
    "a span with a space": ('capture.debounce = "2 s"\n', 1, "capture.debounce", "span of time"),
    "a span in other digits": ('capture.debounce = "٢s"\n', 1, "capture.debounce", "span of time"),
    "a span longer than all": ('compact.after = "1001y"\n', 1, "compact.after", "1000y"),
    "zero where it would mean all": ('capture.scan_every = "0s"\n', 1, "capture.scan_every", "zero"),
    "zero grace": ('retention.grace = "0d"\n', 1, "retention.grace", "zero"),
    "never where it means nothing": ('compact.after = "never"\n', 1, "compact.after", "span of time"),
    "zero instead of never": ('reclaim.after = "0s"\n', 1, "reclaim.after", 'write "never"'),
    "a size without a unit": ('retention.max_total = "4096"\n', 1, "retention.max_total", "KiB"),
    "a size in the wrong case": ('retention.max_total = "50gb"\n', 1, "retention.max_total", "KiB"),
    "a size of nothing": ('retention.max_total = "0B"\n', 1, "retention.max_total", 'write "never"'),
    "a size of minus one": ("retention.max_total = -1\n", 1, "retention.max_total", "string"),
    "an empty home": ('home = ""\n', 1, "home", "empty"),
    "a home somewhere": ('home = "data"\n', 1, "home", 'begin it with "/" or "~/"'),
    "somebody else's home": ('home = "~bob/x"\n', 1, "home", 'begin it with "/" or "~/"'),
    "a home with a NUL": ('home = "/a\\u0000b"\n', 1, "home", "control"),
    "an archive somewhere": ('archive.url = "big"\n', 1, "archive.url", 'begin it with "/" or "~/"'),
    "an unknown agent": (SOURCE.replace("codex", "codx"), 3, "source.agent", "did you mean codex?"),
    "a source without a name": ('[[source]]\nagent = "codex"\nroot = "/a"\n', 1, "source.name", "missing"),
    "a second source without a root": (SOURCE + '\n[[source]]\nname = "b"\nagent = "codex"\n', 6, "source.root", "missing"),
    "a name of nothing": (SOURCE.replace('"a"', '" "'), 2, "source.name", "empty"),
    "two sources of one name": (SOURCE + SOURCE.replace("~/a", "~/b"), 6, "source.name", '"a"'),
    "two sources with one root": (SOURCE + SOURCE.replace('"a"', '"b"').replace("~", "/me"), 8, "source.root", '"a"'),
    "a source that holds our home": ('home = "~/a/kept"\n' + SOURCE, 5, "source.root", "/me/a/kept"),
    "a source in our home": ('home = "/me"\n' + SOURCE, 5, "source.root", "/me"),
    "an archive in a source": (SOURCE + '[archive]\nurl = "~/a/kept"\n', 4, "source.root", "/me/a/kept"),
    "an event type of no meaning": ('checkpoint.on = ["tool_complete"]\n', 1, "checkpoint.on", "tool_completed"),
    "an event type outside a list": ('checkpoint.on = "tool_completed"\n', 1, "checkpoint.on", "list"),
    "no event at all": ("checkpoint.every_events = 0\n", 1, "checkpoint.every_events", "from 1"),
    "not yet: packs": ('pack.after = "30d"\n', 1, "pack.after", "not available in this version"),
    "metrics for all the world": ('service.metrics = "0.0.0.0:9464"\n', 1, "service.metrics", "only this machine reaches"),
    "metrics without a port": ('service.metrics = "127.0.0.1:x"\n', 1, "service.metrics", "no port"),
    "metrics in half a path": ('service.metrics = "some/file.prom"\n', 1, "service.metrics", "not a whole path"),
    "an alarm for a shell": ('service.alarm = "notify-send x"\n', 1, "service.alarm", "not a list"),
    "an alarm on nothing known": ('service.alarm_on = ["fire"]\n', 1, "service.alarm_on", "known here"),
    "no rate at all": ('compact.rate = "0B"\n', 1, "compact.rate", "never"),
    "not yet: object stores": ('archive.url = "s3://bucket/x"\n', 1, "archive.url", "not available in this version"),
}


@pytest.mark.parametrize(("text", "line", "key", "word"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_told_with_file_line_and_key(text: str, line: int | None, key: str, word: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(text, file="some.toml")
    error = caught.value
    assert (error.file, error.line, error.key) == ("some.toml", line, key)
    assert word in f"{error} {error.hint}"
    assert str(error).startswith(f"some.toml:{line}: {key}" if line else "some.toml: ")
    assert error.exit_code == 2
    assert len(f"{error}{error.hint}") < 500


@pytest.mark.parametrize("place", ["127.0.0.1:9464", "[::1]:1", "localhost:65535", "/var/lib/some/coldtrail.prom", ""])
def test_metrics_go_to_a_port_of_this_machine_or_a_file_and_are_written_back_as_they_were(place: str) -> None:
    config = loaded(f'service.metrics = "{place}"\n')
    assert f'metrics = "{place}"' in show(config)
    assert loaded(show(config)) == config


def test_an_alarm_is_a_command_with_its_arguments_and_may_lie_at_home() -> None:
    config = loaded('service.alarm = ["~/bin/tell", "a b"]\nservice.alarm_on = ["disk-full"]\ncompact.rate = "20MiB"\n')
    assert config.service.alarm == (f"{USER}/bin/tell", "a b")
    assert (config.service.alarm_on, config.compact.rate_bytes) == (("disk-full",), 20 << 20)
    assert loaded(show(config)) == config


def test_a_file_that_is_not_there_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_file(tmp_path / "none.toml", user_home=USER)


def test_a_file_that_is_not_utf8_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.toml"
    path.write_bytes(b'discover = true\nhome = "/caf\xe9"\n')
    with pytest.raises(ConfigError, match="not UTF-8") as caught:
        load_file(path, user_home=USER)
    assert (caught.value.file, caught.value.line) == (str(path), 2)


# --- there and back ---

spans = st.integers(1, LONGEST_MS)
texts = st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"]), min_size=1).filter(str.strip)
folders = texts.map(lambda text: Path("/sources") / text.replace("/", "-")).filter(lambda path: path.name not in ("", ".", ".."))


sizes = st.integers(1, LARGEST_BYTES)
counts = st.integers(1, 10**9)


abouts = st.fixed_dictionaries(
    {},
    optional={
        "agent": st.sampled_from(AGENTS),
        "project": texts.map("/".__add__),
        "tag": texts,
        "state": st.sampled_from(["live", "gone"]),
        "larger_than_bytes": sizes,
    },
)
keeps = st.fixed_dictionaries(
    {}, optional={"keep_within_ms": spans, **{f"keep_{name}": counts for name in ("last", "daily", "weekly", "monthly")}}
).filter(bool)
rules = st.builds(lambda about, keep: Rule(**about, **keep), abouts, keeps)


@st.composite
def retentions(draw: st.DrawFn) -> Retention:
    most, floor = draw(st.none() | sizes), draw(st.none() | sizes)
    if most is not None and floor is not None:
        floor = min(floor, most)
    versions, share = draw(st.none() | counts), draw(st.integers(1, 100))
    return Retention(
        draw(spans), most, draw(st.none() | sizes), floor, share, versions, draw(spans), tuple(draw(st.lists(rules, max_size=2)))
    )


@st.composite
def configs(draw: st.DrawFn) -> Config:
    names = draw(st.lists(texts, max_size=3, unique=True))
    roots = draw(st.lists(folders, max_size=3, unique=True))
    agents = [draw(st.sampled_from(AGENTS)) for _ in names]
    return Config(
        home=Path("/kept") / draw(folders).name,
        discover=draw(st.booleans()),
        sources=tuple(map(Source, names, agents, roots)),
        capture=Capture(draw(spans), draw(spans)),
        checkpoint=Checkpoint(draw(st.integers(1, 10**9)), draw(spans), tuple(draw(st.lists(st.sampled_from(EventType))))),
        compact=Compact(draw(st.just(0) | spans), draw(st.integers(1, 19))),
        archive=Archive(draw(st.none() | st.just(Path("/kept/elsewhere")))),
        retention=draw(retentions()),
        reclaim=Reclaim(draw(st.none() | spans), draw(spans)),
    )


@given(configs())
def test_a_config_that_is_shown_and_read_again_is_the_same(config: Config) -> None:
    assert load_text(show(config), user_home=Path("/another")) == config


@given(st.integers(0, LONGEST_MS))
def test_a_span_that_is_written_and_read_again_is_the_same(ms: int) -> None:
    assert parse_span(span_text(ms)) == ms


@given(st.integers(0, LARGEST_BYTES))
def test_a_size_that_is_written_and_read_again_is_the_same(size: int) -> None:
    assert parse_size(size_text(size)) == size


@given(st.text())
def test_any_text_is_an_amount_or_a_value_error(text: str) -> None:
    for parse, most in ((parse_span, LONGEST_MS), (parse_size, LARGEST_BYTES)):
        with contextlib.suppress(ValueError):
            assert 0 <= parse(text) <= most


@given(st.text(alphabet="[]{}=\"'\\\n.# abcoupter0ms"))
def test_any_text_is_a_config_or_a_config_error(text: str) -> None:
    with contextlib.suppress(ConfigError):
        assert loaded(text).home == Path("/me/.local/share/coldtrail")
