"""What was said and done in a session, in one form: as an agent sends it to the models, and as coldtrail's state has it.

Compared are the texts of user and model, each with its role, in order, and the tools called, each with name, input and output.
Left out, since no log is their home:

- instructions: `system`, `systemInstruction`, and messages whose role is `system` or `developer`;
- what a program says of its surroundings at each start, told by how it begins (`SURROUNDINGS`);
- the bounds between messages: programs join neighbours of one role, and Claude Code ends the first of two so joined with a newline;
- the second copy of a tool's result that Gemini CLI sends from the second resume on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

SURROUNDINGS = ("<system-reminder>", "<session_context>")
_ROLES = {"user": "user", "assistant": "assistant", "model": "assistant"}

Body = dict[str, Any]  # of a request, or what it holds


@dataclass(frozen=True, slots=True)
class Call:
    """One tool, called and answered."""

    name: str
    input: object
    output: str


@dataclass(frozen=True, slots=True)
class Talk:
    """A conversation."""

    said: list[tuple[str, str]]  # role, text
    calls: list[Call]


def held(state: Body) -> Talk:
    """As `coldtrail state --json` has it."""
    texts = [(message["role"], text) for message in state["messages"] for text in _texts(message["content"])]
    calls = [Call(tool["tool_name"], _parsed(tool["input"]), _output(tool["output"])) for tool in state["completed_tools"]]
    return Talk(list(_said(texts)), calls)


def sent(request: str) -> Talk:
    """As the body of a request has it, to whichever of the three services."""
    body = json.loads(request)["body"]
    items: Sequence[Body] = body.get("messages") or body.get("input") or body.get("contents")
    parts = [(item.get("role"), part) for item in items for part in _parts(item)]
    texts = [(role, part["text"]) for role, part in parts if isinstance(part.get("text"), str)]
    return Talk(list(_said(texts)), list(_calls([part for _, part in parts])))


def _said(texts: Sequence[tuple[Any, str]]) -> Iterator[tuple[str, str]]:
    for role, text in texts:
        if role in _ROLES and not text.startswith(SURROUNDINGS):
            yield _ROLES[role], text.rstrip("\n")


def _texts(content: object) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content if isinstance(part.get("text"), str)] if isinstance(content, list) else []


def _parts(item: Body) -> list[Body]:
    """A message's parts; a call that stands for itself is one."""
    content = item.get("content", item.get("parts"))
    if isinstance(content, str):
        return [{"text": content}]
    return content if isinstance(content, list) else [item]


def _calls(parts: Sequence[Body]) -> Iterator[Call]:
    """Each call with the first answer to it."""
    asked: dict[str, tuple[str, object]] = {}
    for part in parts:
        if part.get("type") in ("tool_use", "function_call") or "functionCall" in part:
            call = part.get("functionCall", part)
            given = next(call[key] for key in ("input", "arguments", "args") if key in call)
            asked[call.get("call_id", call["id"])] = call["name"], _parsed(given)
        elif part.get("type") in ("tool_result", "function_call_output") or "functionResponse" in part:
            answer = part.get("functionResponse", part)
            number = answer.get("tool_use_id") or answer.get("call_id") or answer["id"]
            if number in asked:
                yield Call(*asked.pop(number), _output(part if "functionResponse" in part else answer.get("content", answer.get("output"))))


def _parsed(given: object) -> object:
    """A tool's input; Codex writes it as JSON text."""
    return json.loads(given) if isinstance(given, str) else given


def _output(output: object) -> str:
    """What a tool gave back, as text."""
    if isinstance(output, list):
        return "".join(map(_output, output))
    if isinstance(output, dict):
        return _output(output.get("functionResponse", {}).get("response", {}).get("output", output.get("text")))
    return str(output)
