"""The conversation that `coldtrail state` tells of is the one that the agent sends to the models when it goes on with the session."""

from __future__ import annotations

import json

import pytest

from e2e.delegating_models import DELEGATE
from e2e.programs import ClaudeCode, GeminiCli, Program
from e2e.talk import Talk, held, sent
from e2e.test_every_agent import PROGRAMS, each
from e2e.test_fork import sweep_nothing
from e2e.world import TOOL_WORD, WORD, World

pytestmark = pytest.mark.e2e

SPOKEN = f'remember {WORD}: “ü”, \\n and\nanother line </system-reminder> {{"role":"user"}}'
FILLED_IN = [("user", "Continue from where you left off."), ("assistant", "No response requested.")]  # where the model spoke not last


@pytest.fixture
def program(request: pytest.FixtureRequest) -> Program:
    """The agent that a test names as its parameter."""
    chosen: Program = request.param
    return chosen


def begin(world: World, prompt: str = SPOKEN) -> str:
    """A session of one turn; gives its id."""
    if isinstance(world.program, GeminiCli):
        sweep_nothing(world.home)
    world.turn(prompt)
    return world.program.session_id(world.only_log())


def recovered(world: World, session_id: str) -> Talk:
    """What coldtrail has of a session by now."""
    world.coldtrail("run", "--once")
    document = world.coldtrail_json("state", session_id)
    assert document["gaps"] == []
    assert document["state"]["pending_tools"] == {}
    return held(document["state"])


def sent_back(world: World, session_id: str) -> Talk:
    """What the agent sends of a session when it goes on with it, but for the prompt by which it does so."""
    first, *_ = world.resume(session_id)
    talk = sent(first)
    assert talk.said.pop() == ("user", "go on")
    return talk


@each(PROGRAMS)
def test_turns_with_tool_calls_are_told_as_the_agent_tells_them(world: World) -> None:
    """Texts, roles, order, tools: after the first turn, and after each resume, of which every one writes in its own way."""
    session_id = begin(world)
    for turns in (1, 2, 3):
        ours = recovered(world, session_id)
        theirs = sent_back(world, session_id)
        assert ours.said == theirs.said
        assert ours.calls == theirs.calls
        assert len(ours.said) == 2 * turns + (ours.said[0][1] != SPOKEN)  # Codex writes down its surroundings
        assert [TOOL_WORD in call.output for call in ours.calls] == [True] * turns


@each([ClaudeCode()])
def test_a_sub_agents_answer_is_told_and_what_it_said_to_itself_is_not(world: World) -> None:
    """Its own conversation is in a log of its own."""
    world.set_tool("seq 1 20000\n")
    session_id = begin(world, f"{SPOKEN} {DELEGATE}")
    ours = recovered(world, session_id)
    theirs = sent_back(world, session_id)
    assert ours == theirs
    assert [call.name for call in ours.calls] == ["Agent"]


@each([ClaudeCode()])
def test_of_a_branched_session_the_last_branch_is_told(world: World) -> None:
    """Claude Code goes on from an earlier answer: what followed it stays in the log and is sent no more."""
    session_id = begin(world)
    first = recovered(world, session_id)
    world.turn("left behind", session_id)
    said = [event for event in world.events(session_id) if event["type"] == "message_added" and event["data"]["role"] == "assistant"]
    run = world.start_agent(*world.program.arguments("branched off", session_id), "--resume-session-at", said[0]["id"]).wait()
    assert run.code == 0, run

    ours = recovered(world, session_id)
    theirs = sent_back(world, session_id)
    assert ours.said == theirs.said
    assert ours.said[: len(first.said)] == first.said
    assert [text for role, text in ours.said if role == "user"] == [SPOKEN, "branched off"]


@each([ClaudeCode()])
def test_of_a_compacted_session_the_summary_is_told_with_what_was_kept_behind_it(world: World) -> None:
    """Claude Code keeps the end of the conversation word for word; it stands in the log before the summary that it follows."""
    session_id = begin(world)
    world.turn("the second", session_id)
    run = world.start_agent("-p", "/compact", "--resume", session_id, "--output-format", "json").wait()
    assert run.code == 0, run

    ours = recovered(world, session_id)
    theirs = sent_back(world, session_id)
    said = [each for each in theirs.said if each not in FILLED_IN]
    assert len(said) == len(theirs.said) - len(FILLED_IN)
    assert ours.said == said
    assert ours.said[0][1].startswith("This session is being continued")
    assert ours.said[1][0] == "assistant"

    ours = recovered(world, session_id)
    assert ours.said == sent_back(world, session_id).said


@each([GeminiCli()])
def test_of_a_compressed_session_what_the_program_put_in_its_place_is_told(world: World) -> None:
    """Gemini CLI writes the whole conversation anew, and then some of its messages again."""
    session_id = begin(world)
    for prompt in ("the second", "the third", "/compress"):
        world.turn(prompt, session_id)
    ours = recovered(world, session_id)
    assert SPOKEN not in json.dumps(ours.said)
    assert ours.said == sent_back(world, session_id).said
