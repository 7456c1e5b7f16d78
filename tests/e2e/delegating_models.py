"""The stand-in models, taught one thing more: a prompt that says DELEGATE makes Claude Code start a sub-agent.

Run as `python delegating_models.py MOCK_MODELS [its options]`.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from typing import Any

DELEGATE = "DELEGATE"
CHILD_PROMPT = "find the MEDLAR"  # what the sub-agent is asked; it stands in the sub-agent's log


def teach(models: Any) -> None:
    """Put a handler into the loaded module that answers the first request of a delegating turn itself."""

    class Delegating(models.Handler):  # type: ignore[misc]
        def _anthropic(self, body: dict[str, Any], n: int) -> None:
            if body.get("stream") and _asks_to_delegate(body):
                self._events(_delegation(body, n))
            else:
                super()._anthropic(body, n)

    models.Handler = Delegating


def _asks_to_delegate(body: dict[str, Any]) -> bool:
    """Whether the user's newest message is a delegating prompt, sent with the tool that starts a sub-agent."""
    has_tool = any(tool.get("name") == "Agent" for tool in body.get("tools") or [])
    said = [message.get("content") for message in body.get("messages") or [] if message.get("role") == "user"]
    return has_tool and DELEGATE in json.dumps(said[-1:])


def _delegation(body: dict[str, Any], n: int) -> list[tuple[str, dict[str, Any]]]:
    """A streamed answer that is one call of the tool that starts a sub-agent."""
    arguments = {"description": "mock", "prompt": CHILD_PROMPT, "subagent_type": "general-purpose", "run_in_background": False}
    empty: dict[str, Any] = {"content": [], "usage": {"input_tokens": 10, "output_tokens": 1}, "stop_reason": None, "stop_sequence": None}
    message = {"id": f"msg_mock{n:06d}", "type": "message", "role": "assistant", "model": body.get("model", "mock"), **empty}
    call = {"type": "tool_use", "id": f"toolu_mock{n:06d}", "name": "Agent", "input": {}}
    events: list[tuple[str, dict[str, Any]]] = [
        ("message_start", {"message": message}),
        ("content_block_start", {"index": 0, "content_block": call}),
        ("content_block_delta", {"index": 0, "delta": {"type": "input_json_delta", "partial_json": json.dumps(arguments)}}),
        ("content_block_stop", {"index": 0}),
        ("message_delta", {"delta": {"stop_reason": "tool_use", "stop_sequence": None}, "usage": {"output_tokens": 5}}),
        ("message_stop", {}),
    ]
    return [(name, {"type": name, **data}) for name, data in events]


def main() -> None:
    """Load the stand-in models from their file, teach them, serve."""
    spec = importlib.util.spec_from_file_location("mock_models", sys.argv.pop(1))
    assert spec
    assert spec.loader
    models = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(models)
    teach(models)
    models.main()


if __name__ == "__main__":
    main()
