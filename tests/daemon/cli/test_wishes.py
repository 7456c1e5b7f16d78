"""`coldtrail pin`, `unpin`, `config` and `completion`."""

from __future__ import annotations

import shutil
import subprocess
import tomllib

import pytest

from coldtrail.config import Config, load_text
from daemon.cli.desk import FIRST, SECOND, Desk


def test_a_pin_outlives_the_catalog(desk: Desk) -> None:
    desk.captured()
    desk.run("pin", FIRST)
    for path in desk.trail.glob("catalog.db*"):
        path.unlink()
    assert desk.json("show", FIRST)["pinned"] is True


def test_pinning_tells_the_key_and_the_title(desk: Desk) -> None:
    desk.captured()
    key = desk.json("show", FIRST)["key"]
    assert desk.run("pin", FIRST).stdout == f"pinned  {key}  list the files\n"
    assert desk.run("unpin", FIRST).stdout == f"unpinned  {key}  list the files\n"


def test_unpin_lifts_it(desk: Desk) -> None:
    desk.captured()
    desk.run("pin", FIRST)
    desk.run("unpin", FIRST)
    assert desk.json("show", FIRST)["pinned"] is False


def test_of_several_the_good_ones_are_pinned_and_the_end_is_a_3(desk: Desk) -> None:
    desk.captured()
    desk.converse(SECOND, project="/somebody/else")
    desk.capture()
    desk.run("pin", FIRST, "nothing", SECOND, code=3)
    assert [session["pinned"] for session in desk.json("ls")["sessions"]] == [True, True]


# --- config ---


def test_the_config_that_is_shown_is_the_one_in_force(desk: Desk) -> None:
    desk.configure('[compact]\nafter = "7d"\n')
    shown = desk.run("config", "show").stdout
    assert shown.startswith(f"# {desk.config}\n")
    assert load_text(shown, user_home=desk.user) == load_text('[compact]\nafter = "7d"', user_home=desk.user)


def test_without_a_file_the_defaults_are_shown(desk: Desk) -> None:
    shown = desk.run("config", "show").stdout
    assert load_text(shown, user_home=desk.user) == Config.defaults(user_home=desk.user)


def test_the_home_that_is_shown_is_the_one_that_was_asked_for(desk: Desk) -> None:
    shown = tomllib.loads(desk.run("--home", "/elsewhere", "config", "show").stdout)
    assert shown["home"] == "/elsewhere"


def test_the_config_as_json_has_the_keys_of_the_file(desk: Desk) -> None:
    said = desk.json("config", "show")
    assert said == {"file": None, "config": tomllib.loads(desk.run("config", "show").stdout)}


def test_a_good_config_is_a_0(desk: Desk) -> None:
    desk.configure("discover = false\n")
    assert desk.run("config", "check").stdout == f"ok: {desk.config}\n"
    assert desk.json("config", "check") == {"file": str(desk.config), "ok": True, "error": None, "missing": []}


def test_no_config_is_a_good_config(desk: Desk) -> None:
    assert desk.run("config", "check").stdout == "ok: no config file, the defaults hold\n"


def test_a_bad_config_is_a_2_that_names_file_line_and_key(desk: Desk) -> None:
    desk.configure('discover = false\n\n[compact]\nafter = "7x"\n')
    result = desk.run("config", "check", code=2)
    assert result.stdout == ""
    assert result.stderr.startswith(f"coldtrail: {desk.config}:4: compact.after: ")


def test_a_bad_config_as_json(desk: Desk) -> None:
    desk.configure("colour = 1\n")
    said = desk.json("config", "check", code=2)
    assert (said["ok"], said["file"], said["error"]["line"], said["error"]["key"]) == (False, str(desk.config), 1, "colour")


def test_a_source_that_is_not_there_is_told_and_no_error(desk: Desk) -> None:
    desk.configure(f'[[source]]\nname = "mine"\nagent = "event-log"\nroot = "{desk.folder}/unmounted"\n')
    result = desk.run("config", "check")
    assert f"{desk.folder}/unmounted: this source's folder is not there" in result.stderr


def test_the_config_is_found_by_the_option_before_the_environment(desk: Desk) -> None:
    desk.configure("colour = 1\n")
    other = desk.folder / "other.toml"
    other.touch()
    assert desk.run("--config", other, "config", "check").stdout == f"ok: {other}\n"


def test_a_named_config_that_is_not_there_is_a_2(desk: Desk) -> None:
    desk.run("--config", desk.folder / "nowhere.toml", "ls", code=2)


@pytest.mark.parametrize(
    "command", [["ls"], ["status"], ["verify"], ["rebuild"], ["show", "x"], ["pin", "x"], ["restore", "x"], ["events", "x"]]
)
def test_with_a_bad_config_no_command_does_anything(desk: Desk, command: list[str]) -> None:
    desk.configure("colour = 1\n")
    desk.run(*command, code=2)
    assert not desk.trail.exists()


# --- completion ---


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_that_asks_this_command(desk: Desk, shell: str) -> None:
    shown = desk.run("completion", shell).stdout
    assert f"_COLDTRAIL_COMPLETE={shell}_complete" in shown


def test_another_shell_is_a_usage_error(desk: Desk) -> None:
    desk.run("completion", "tcsh", code=2)


def test_bash_takes_the_script(desk: Desk) -> None:
    if shutil.which("bash") is None:
        pytest.skip("bash is not on this machine")
    script = desk.run("completion", "bash").stdout
    done = subprocess.run(
        ["bash", "--norc", "-c", f"{script}\ncomplete -p coldtrail"], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.rstrip().endswith("coldtrail")


def test_the_commands_are_completed(desk: Desk) -> None:
    done = desk.start(_COLDTRAIL_COMPLETE="bash_complete", COMP_WORDS="coldtrail re", COMP_CWORD="1")
    assert done.stdout.splitlines() == ["plain,resume", "plain,reload", "plain,restore", "plain,rebuild"]
