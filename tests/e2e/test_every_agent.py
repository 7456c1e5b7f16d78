"""What holds for each of the agents: captured while it works, gone, put back, gone on with."""

from __future__ import annotations

import pytest

from e2e.programs import ClaudeCode, Codex, GeminiCli, Program
from e2e.world import TOOL_WORD, WORD, World, total_bytes

pytestmark = pytest.mark.e2e

PROGRAMS: list[Program] = [ClaudeCode(), Codex(), GeminiCli()]
WRITES_CALLS_FIRST: list[Program] = [ClaudeCode(), Codex()]  # Gemini CLI writes a tool call only when its result is there
SEALED_AT_ONCE = '[compact]\nafter = "0s"\n'


@pytest.fixture
def program(request: pytest.FixtureRequest) -> Program:
    """The agent that a test names as its parameter."""
    chosen: Program = request.param
    return chosen


def each(programs: list[Program]) -> pytest.MarkDecorator:
    """Run a test with each of these programs."""
    return pytest.mark.parametrize("program", programs, ids=lambda program: program.agent, indirect=True)


@each(PROGRAMS)
def test_a_session_deleted_under_the_daemon_comes_back_and_the_agent_goes_on_with_it(world: World) -> None:
    """Captured during the tool call; deleted; not resumable; restored to the byte; resumable; captured on in the same generation, whole."""
    with world.daemon():
        with world.held_turn(f"remember {WORD}"):
            session_id = world.program.session_id(world.only_log())
            world.wait_for_capture(session_id)
        written, generation = world.wait_for_capture(session_id), world.generation(session_id)

        world.delete(session_id)
        world.wait_for_state(session_id, "gone")
        assert world.cannot_resume(session_id)
        assert world.bundle(session_id) == {}

        answer = world.coldtrail_json("restore", session_id)
        assert world.bundle(session_id) == written  # bytes, modes and times
        assert {file["path"]: file["bytes"] for file in answer["restored"]} == {str(path): len(file.data) for path, file in written.items()}

        assert all(WORD in request for request in world.resume(session_id))
        grown = world.bundle(session_id)
        assert all(grown[path].data.startswith(file.data) for path, file in written.items())
        assert total_bytes(grown) > total_bytes(written)
        world.wait_for_capture(session_id)
        assert world.session(session_id)["state"] == "live"
        assert world.generation(session_id) == generation

    world.delete(session_id)
    world.coldtrail("restore", session_id)
    assert world.bundle(session_id) == grown


@each(PROGRAMS)
def test_a_session_from_before_the_first_start_comes_back_from_the_archive(world: World) -> None:
    """One pass captures and seals what was there already; the proof of it is `ok`; what it puts back can be resumed."""
    world.configure(SEALED_AT_ONCE)
    session_id, _ = world.first_turn()
    written = world.bundle(session_id)

    world.coldtrail("run", "--once")
    assert world.coldtrail_json("verify", session_id)["verdict"] == "ok"
    world.delete(session_id)
    world.coldtrail("restore", session_id)

    assert world.bundle(session_id) == written
    assert all(WORD in request for request in world.resume(session_id))


@each(PROGRAMS)
def test_the_events_of_a_real_session_are_its_prompt_its_tool_call_and_its_answer(world: World) -> None:
    """What the agent wrote, in the words that all agents share."""
    session_id, _ = world.first_turn()
    world.coldtrail("run", "--once")

    events = [(event["type"], event["data"]) for event in world.events(session_id)]

    said = [(data["role"], str(data["content"])) for type_, data in events if type_ == "message_added"]
    assert any(role == "user" and WORD in content for role, content in said)
    assert any(role == "assistant" and "mock answer" in content for role, content in said)
    calls = {data["invocation_id"] for type_, data in events if type_ == "tool_invoked"}
    results = {data["invocation_id"]: str(data["output"]) for type_, data in events if type_ == "tool_completed"}
    assert results.keys() == calls
    assert [TOOL_WORD in output for output in results.values()] == [True]


@each(WRITES_CALLS_FIRST)
def test_a_tool_that_runs_now_has_been_called_and_has_no_result(world: World) -> None:
    """In the middle of a tool call its event is there, in the first pass that looks."""
    with world.held_turn(f"remember {WORD}"):
        session_id = world.program.session_id(world.only_log())
        world.coldtrail("run", "--once")
        events = world.events(session_id)

    assert ["tool.sh" in str(event["data"]["input"]) for event in events if event["type"] == "tool_invoked"] == [True]
    assert "tool_completed" not in {event["type"] for event in events}


@each(PROGRAMS)
def test_a_restored_session_is_restored_again_without_a_change(world: World) -> None:
    """Restoring what is already there does nothing, and says so."""
    session_id, _ = world.first_turn()
    world.coldtrail("run", "--once")
    world.delete(session_id)
    world.coldtrail("restore", session_id)
    once = world.bundle(session_id)

    answer = world.coldtrail_json("restore", session_id)

    assert world.bundle(session_id) == once
    assert answer["restored"] == []
