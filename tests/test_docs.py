"""The README, the example config and the docstrings say what is so: their examples are run."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from coldtrail.config import Config, load_file, load_text, show

REPO = Path(__file__).resolve().parents[1]
README = (REPO / "README.md").read_text(encoding="utf-8")
LIBRARY = REPO / "pipeline"
EXAMPLE_ID = "ae3d54a6"  # the session that the README speaks of
USER = Path("/somebody")


def blocks(language: str) -> list[str]:
    """The README's fenced blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


# --- the README ---


def test_the_readme_opens_with_what_coldtrail_does_in_five_lines_then_the_two_commands() -> None:
    title, what, commands = README.split("\n\n")[:3]
    assert title == "# coldtrail"
    assert len(what.split("\n")) <= 5
    assert re.findall(r"^make \w+", commands, re.MULTILINE) == ["make run", "make test"]


def test_every_file_the_readme_names_is_there() -> None:
    named = set(re.findall(r"`((?:pipeline|daemon|config|tests|\.ci)[/\w.-]*)`", README)) | set(
        re.findall(r"\]\((?!http)([^)]+)\)", README)
    )
    assert named
    assert [name for name in sorted(named) if not (REPO / name).exists()] == []


def test_every_make_target_the_readme_names_is_there() -> None:
    makefile = (REPO / "Makefile").read_text()
    for target in set(re.findall(r"make (\w+)", " ".join(re.findall(r"`make [^`]+`|^make \w+", README, re.MULTILINE)))):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("text", blocks("toml"))
def test_the_config_in_the_readme_is_a_good_one(text: str) -> None:
    assert load_text(text, user_home=USER) != Config.defaults(user_home=USER)


# --- the commands ---


def command_line() -> click.Group:
    cli = importlib.import_module("coldtraild.cli")
    return next(value for value in vars(cli).values() if isinstance(value, click.Group))


def commands(group: click.Group, above: str = "coldtrail") -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, by the words that call it."""
    with click.Context(group) as context:
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            if isinstance(command, click.Group):
                yield from commands(command, f"{above} {name}")
            elif command is not None and not command.hidden:
                yield f"{above} {name}", command


def test_every_command_stands_in_the_readme() -> None:
    assert [words for words, _ in commands(command_line()) if not re.search(rf"{words}\b", README)] == []


def test_every_command_has_help_with_an_example() -> None:
    said = {words: f"{command.help or ''}\n{command.epilog or ''}" for words, command in commands(command_line())}
    assert [words for words, text in said.items() if not text.strip()] == []
    assert [words for words, text in said.items() if not re.search(rf"{words}\b", text)] == [], "no example"


def test_every_option_says_what_it_does() -> None:
    for words, command in commands(command_line()):
        silent = [option.name for option in command.params if isinstance(option, click.Option) and not (option.help or option.hidden)]
        assert not silent, words


# --- the README's examples, run where an agent left one session ---


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a user whose Claude Code had one session, which coldtrail captured before the agent deleted it."""
    home = tmp_path_factory.mktemp("user")
    bin_folder = home / "bin"
    bin_folder.mkdir()
    starter = bin_folder / "coldtrail"
    starter.write_text(f"#!{sys.executable}\nimport sys\nfrom coldtraild.cli import main\nsys.exit(main())\n")
    starter.chmod(0o755)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "COLDTRAIL_", "CLAUDE_", "CODEX_", "GEMINI_"))}
    env |= {"HOME": str(home), "PATH": f"{bin_folder}:{env['PATH']}"}
    if "PYTHONPATH" in env:  # the examples run in another folder than these tests
        env["PYTHONPATH"] = os.pathsep.join(os.path.abspath(folder) for folder in env["PYTHONPATH"].split(os.pathsep))
    log = claude_session(home)
    ran(["coldtrail", "run", "--once"], env)
    log.unlink()
    return env


def claude_session(home: Path) -> Path:
    """One turn with a tool, as Claude Code writes it."""
    session = f"{EXAMPLE_ID}-6f1d-4c5e-9d0b-5b7f3f0a1c2d"
    used = [{"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}]
    got = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.txt"}]
    said = [("user", "list the files"), ("assistant", used), ("user", got)]
    log = home / ".claude" / "projects" / "-somebody-demo" / f"{session}.jsonl"
    log.parent.mkdir(parents=True)
    lines = [
        {
            "type": role,
            "uuid": f"{at}-{session}",
            "parentUuid": f"{at - 1}-{session}" if at else None,
            "sessionId": session,
            "cwd": "/somebody/demo",
            "timestamp": f"2026-01-01T00:00:0{at}.000Z",
            "message": {"role": role, "content": content},
        }
        for at, (role, content) in enumerate(said)
    ]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return log


def ran(command: list[str], env: dict[str, str]) -> str:
    """What a command printed; fails with its messages unless it ended with 0."""
    program = shutil.which(command[0], path=env["PATH"]) or command[0]
    done = subprocess.run([program, *command[1:]], env=env, cwd=env["HOME"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_readmes_commands_run_as_they_stand(world: dict[str, str]) -> None:
    lines = [line.removeprefix("$ ") for block in blocks("console") for line in block.split("\n") if line.startswith("$ ")]
    assert any("restore" in line for line in lines)
    for line in lines:
        ran(["bash", "-c", line], world)
    assert list(Path(world["HOME"], ".claude").rglob(f"{EXAMPLE_ID}*.jsonl")), "restore puts the session back"


def test_the_readmes_zstd_command_prints_the_log_without_coldtrail(world: dict[str, str]) -> None:
    (line,) = re.findall(r"^zstd -dc .*$", README, re.MULTILINE)
    if shutil.which("zstd") is None:
        pytest.skip("zstd is not on this machine")
    config = Path(world["HOME"], "sealing.toml")
    config.write_text('[compact]\nafter = "0s"\n')
    ran(["coldtrail", "--config", str(config), "run", "--once"], world)
    assert '"list the files"' in ran(["bash", "-c", re.sub("HOST|SOURCE|STREAM", "*", line)], world)


@pytest.mark.parametrize("code", blocks("python"))
def test_the_readmes_python_runs_as_it_stands(code: str, world: dict[str, str]) -> None:
    assert EXAMPLE_ID in ran([sys.executable, "-c", code], world)


# --- the example config ---


def test_the_example_config_says_the_defaults_and_every_key() -> None:
    path = REPO / "config" / "coldtrail.toml"
    assert load_file(path, user_home=USER) == Config.defaults(user_home=USER)
    written, effective = (tomllib.loads(text) for text in (path.read_text(), show(Config.defaults(user_home=USER))))
    assert {name: sorted(value) if isinstance(value, dict) else None for name, value in written.items()} == {
        name: sorted(value) if isinstance(value, dict) else None for name, value in effective.items()
    }


# --- the docstrings ---


def exported() -> list[str]:
    """The names of the face, read without importing it."""
    face = LIBRARY / "coldtrail" / "__init__.py"
    for node in ast.parse(face.read_text()).body if face.exists() else []:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    return []


@pytest.mark.parametrize("name", exported())
def test_an_exported_name_says_what_it_is(name: str) -> None:
    value = getattr(importlib.import_module("coldtrail"), name)
    members = [member for key, member in vars(value).items() if not key.startswith("_")] if inspect.isclass(value) else []
    for one in [value, *(member for member in members if inspect.isroutine(member) or isinstance(member, property))]:
        said = inspect.getdoc(one)
        assert said, one
        assert said != inspect.getdoc(type(one)), one


def with_examples() -> list[str]:
    return [
        ".".join(path.relative_to(LIBRARY).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted(LIBRARY.rglob("*.py"))
        if ">>>" in path.read_text(encoding="utf-8")
    ]


@pytest.mark.parametrize("name", with_examples())
def test_the_examples_in_docstrings_are_so(name: str) -> None:
    said = doctest.DocTestFinder().find(importlib.import_module(name))
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    results = [runner.run(example) for example in said]
    assert sum(result.attempted for result in results) > 0
    assert sum(result.failed for result in results) == 0


# --- the version ---


def test_the_changelog_speaks_of_this_version() -> None:
    version = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["version"]
    assert re.search(rf"^## {re.escape(version)}\b", (REPO / "CHANGELOG.md").read_text(), re.MULTILINE)
